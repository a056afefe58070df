"""Where a tensor lies in memory, as calls of PyTorch."""

from __future__ import annotations

from egg.expert.graph import Value, contiguous_stride
from egg.expert.sizes import ONE

LAST = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
"""PyTorch's names of the layout with the channels last, by dimensions."""
LAST_WEIGHT = "channels_last_weight"
PHASE_WEIGHT = "phase_weight"
ALIGNED_WEIGHT = "aligned_weight"
PADDED_WEIGHT = "padded_weight"
HELPERS = {
    ALIGNED_WEIGHT: f'''def {ALIGNED_WEIGHT}(weight):
    """A matrix whose rows begin at multiples of 16 bytes, as the library's fast products load them."""
    width, step = weight.shape[1], 16 // weight.element_size()
    return nn.functional.pad(weight, (0, -width % step))[:, :width]''',
    PADDED_WEIGHT: f'''def {PADDED_WEIGHT}(weight, dim, block):
    """A weight with features of zeros behind its own, in whole blocks: rows of a product with it begin at
    multiples of 16 bytes, as the library's fast products store them."""
    before = (0, 0) * (weight.dim() - 1 - dim)
    return nn.functional.pad(weight, (*before, 0, -weight.shape[dim] % block))''',
    PHASE_WEIGHT: f'''def {PHASE_WEIGHT}(weight, *padding):
    """A weight for images that are to be doubled, on the images as they are: for results at even and at
    odd places the taps that meet the same element are summed. Phases are channels, the channels are last.
    """
    taps = weight.float()
    for pad in padding:
        phase, tap = torch.arange(2)[:, None], torch.arange(taps.shape[2])[None, :]
        place = (phase + tap - pad) // 2 - (phase - pad) // 2
        meets = place[:, None, :] == torch.arange(pad + 1)[None, :, None]
        taps = torch.tensordot(taps, meets.to(taps), dims=([2], [2]))
    count = len(padding)
    order = [2 + 2 * at for at in range(count)] + [0, 1] + [3 + 2 * at for at in range(count)]
    taps = taps.permute(order).flatten(0, count).to(weight.dtype)
    return taps.contiguous(memory_format={LAST[4]} if count == 2 else {LAST[5]})''',
    LAST_WEIGHT: f'''def {LAST_WEIGHT}(weight):
    """A weight with its input channels last; one of rows as that of images one pixel high."""
    weight = weight.unsqueeze(2) if weight.dim() == 3 else weight
    order = {LAST[4]} if weight.dim() == 4 else {LAST[5]}
    return weight.contiguous(memory_format=order)''',
}
"""Functions of the host that calls may use, by name."""


def brought(value: Value) -> str | None:
    """What makes a tensor lie as ``value`` does, where that is without gaps. Dimensions of size one lie
    anywhere: their strides are not looked at."""
    dims = [dim for dim in range(value.rank) if value.shape[dim] != ONE]
    inner = sorted(dims, key=lambda dim: (-value.stride[dim].value, dim))
    shape = tuple(value.shape[dim] for dim in inner)
    if value.contiguous:
        return ".contiguous()"
    if contiguous_stride(shape) != tuple(value.stride[dim] for dim in inner):
        return None
    if inner == dims:
        return ".contiguous()"
    order = list(range(value.rank))
    for place, dim in zip(dims, inner, strict=True):
        order[place] = dim
    moved = [place for place, dim in enumerate(order) if place != dim]
    if len(moved) == 2:
        swap = f".transpose({moved[0]}, {moved[1]})"
        return f"{swap}.contiguous(){swap}"
    back = [order.index(dim) for dim in range(value.rank)]
    return f".permute({_listed(order)}).contiguous().permute({_listed(back)})"


def _listed(dims: list[int]) -> str:
    return ", ".join(map(str, dims))
