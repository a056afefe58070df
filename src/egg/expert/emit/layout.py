"""Where a tensor lies in memory, as calls of PyTorch."""

from __future__ import annotations

from egg.expert.graph import Value, contiguous_stride


def brought(value: Value) -> str | None:
    """What makes a tensor lie as ``value`` does, where that is without gaps."""
    if value.contiguous:
        return ".contiguous()"
    order = sorted(range(value.rank), key=lambda dim: (-value.stride[dim].value, dim))
    shape = tuple(value.shape[dim] for dim in order)
    if contiguous_stride(shape) != tuple(value.stride[dim] for dim in order):
        return None
    moved = [place for place, dim in enumerate(order) if place != dim]
    if len(moved) == 2:
        swap = f".transpose({moved[0]}, {moved[1]})"
        return f"{swap}.contiguous(){swap}"
    back = [order.index(dim) for dim in range(value.rank)]
    return f".permute({_listed(order)}).contiguous().permute({_listed(back)})"


def _listed(dims: list[int]) -> str:
    return ", ".join(map(str, dims))
