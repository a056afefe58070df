"""Where a copy of an operand may lie in place of what a kernel makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import torch

MOST_DIMENSIONS = 4
"""Of a tensor that may be turned."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
Copy = Callable[[], torch.Tensor]


def copies_of(made: torch.Tensor, operand: torch.Tensor) -> Iterator[Copy]:
    """Ways to copy an operand: as it lies, turned, at the beginning of a larger tensor, or its beginning."""
    faces = [(made, operand), (memory_of(made), memory_of(operand))]
    for there, source in faces if made.numel() != operand.numel() else faces[:1]:
        pairs = list(_placed(there, source))
        for target, face in pairs:
            yield from (
                lambda target=target, face=face, code=code: put(target, face, code)
                for code in ((True, False) if _has_codes(target, face) else (False,))
            )
        if pairs:
            return


def _placed(made: torch.Tensor, operand: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if made.shape == operand.shape:
        yield made, operand
    elif made.numel() == operand.numel() and sorted(made.shape) == sorted(operand.shape):
        turned = (operand.permute(order) for order in _orders(operand.dim()))
        yield from ((made, one) for one in turned if one.shape == made.shape)
    elif made.numel() == operand.numel() and made.is_contiguous():
        yield made.view(-1), operand.reshape(-1)
    elif made.dim() == operand.dim():
        small = [min(pair) for pair in zip(made.shape, operand.shape, strict=True)]
        if min(made.numel(), operand.numel()) == torch.Size(small).numel() > 1:
            corner = tuple(slice(0, size) for size in small)
            yield made[corner], operand[corner]


def face_of(there: torch.Tensor, operand: torch.Tensor) -> torch.Tensor | None:
    """An operand as it would lie in a view of as many elements: as it is, turned, or one behind another."""
    if there.numel() != operand.numel() or there.numel() < 2 or there.dtype != operand.dtype:
        return None
    turned = (face for made, face in _placed(there, operand) if made.shape == there.shape)
    return next(turned, operand.reshape(there.shape))


def _orders(dimensions: int) -> Sequence[tuple[int, ...]]:
    return list(permutations(range(dimensions))) if dimensions <= MOST_DIMENSIONS else []


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of the memory of which an argument shows the beginning."""
    flat = tensor.new_empty(0)
    return flat.set_(tensor.untyped_storage())  # pyright: ignore[reportArgumentType]


def _has_codes(made: torch.Tensor, operand: torch.Tensor) -> bool:
    """Whether floats become integers that have room for their order, or such integers floats."""
    floats, integers = (made, operand) if made.is_floating_point() else (operand, made)
    kinds = floats.is_floating_point() and not (integers.is_floating_point() or integers.is_complex())
    return kinds and INTEGERS.get(floats.itemsize) is not None and integers.itemsize >= floats.itemsize


def put(made: torch.Tensor, operand: torch.Tensor, code: bool) -> torch.Tensor:
    """Copy values, or to integers the places of floats in their order; returns what was copied."""
    source = operand.detach().clone()
    if not code:
        made.copy_(source)
    elif made.is_floating_point():
        bits = source.to(INTEGERS[made.itemsize])
        made.copy_(_turned(bits).view(made.dtype))
    else:
        bits = source.contiguous().view(INTEGERS[source.itemsize])
        made.copy_(_turned(bits))
    return source


def _turned(bits: torch.Tensor) -> torch.Tensor:
    """Bits of floats as integers of the same order, and back."""
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)
