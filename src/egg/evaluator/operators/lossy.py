"""Operations that drop fractions or high bits, seen by their values and whatever their names.

``floor`` and ``trunc`` say what they do; a quotient that rounds, ``bucketize`` or a product by whole steps do
not. An operator is one of them if it makes whole numbers of numbers with fractions, or leaves the low bits of
integers. A cast of PyTorch's can stand for it where the cast itself drops something. A few results say
nothing: a sigmoid of large numbers is zero or one, and what saturates is one of two bounds.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.operators.runs import tensors_in

SAMPLES = 1024
LEAST_DISTINCT = 3
"""Whole results that no operand holds in the same place."""
FRACTION_BITS = 3
"""That a float of the results' size has room for: a larger one is whole by itself."""
WIDTHS = (8, 16)
"""Bits of integers that a cast leaves."""


class Lossy:
    """A recorder's ``flow``: whether some operator that computes drops fractions or high bits."""

    def __init__(self) -> None:
        self.found = False
        self._read: list[tuple[torch.Size, torch.Tensor]] = []

    def given(self, operands: Any) -> bool:
        self._read = [] if self.found else [(t.shape, sample(t)) for t in tensors_in(operands) if _plain(t)]
        return False

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        if not computes or self.found:
            return
        for made in filter(_plain, tensors_in(result)):
            read = [values for shape, values in self._read if shape == made.shape]
            self.found |= drops(read, sample(made))


def drops(read: list[torch.Tensor], made: torch.Tensor) -> bool:
    """Whether samples of a result are whole numbers where operands have fractions, or low bits of theirs."""
    if made.dtype is torch.bool:
        return False
    if not made.is_floating_point() and any(_low_bits(one, made) for one in read):
        return True
    if has_fractions(made) or not any(map(has_fractions, read)):
        return False
    new = torch.ones_like(made, dtype=torch.bool)
    for one in read:
        new &= one.to(torch.float64) != made.to(torch.float64)
    if made.is_floating_point():
        new &= made.abs() < 2.0**-FRACTION_BITS / torch.finfo(made.dtype).eps
    return made[new].unique().numel() >= LEAST_DISTINCT


def loses(source: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a copy to another type drops fractions, compares with zero, or leaves high bits out.

    A float beyond the integers' range is another matter: it has no place among them.
    """
    if not (_plain(source) and _plain(result)) or source.shape != result.shape:
        return False
    if source.is_cuda and torch.cuda.is_current_stream_capturing():
        return False  # no value can be read while a CUDA graph is recorded
    before, behind = sample(source), sample(result)
    if before.is_floating_point() and behind.dtype is not torch.bool:
        return has_fractions(before)
    if before.is_floating_point():
        return bool((before.isfinite() & (before != 0) & (before != 1)).any())
    return bool((before.to(torch.int64) != behind.to(torch.int64)).any())


def narrows(source: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a copy to another type of floats makes other numbers."""
    if not (_plain(source) and _plain(result)) or source.shape != result.shape:
        return False
    if not (source.is_floating_point() and result.is_floating_point()) or source.dtype == result.dtype:
        return False
    if source.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    before, behind = sample(source).to(torch.float64), sample(result).to(torch.float64)
    return bool((before.isfinite() & (before != behind)).any())


def varies(tensor: torch.Tensor) -> bool:
    """Whether samples of it are different numbers."""
    values = sample(tensor) if _plain(tensor) else tensor.new_empty(0)
    values = values.to(torch.float64) if values.is_floating_point() else values
    known = values[values == values]
    return bool((known != known[:1]).any())


def has_fractions(values: torch.Tensor) -> bool:
    if not values.is_floating_point():
        return False
    wide = values.to(torch.float64)
    return bool((wide.isfinite() & (wide != wide.trunc())).any())


def _low_bits(operand: torch.Tensor, made: torch.Tensor) -> bool:
    if operand.is_floating_point() or operand.is_complex() or operand.dtype is torch.bool:
        return False
    one, two = operand.to(torch.int64), made.to(torch.int64)
    changed = one != two
    return two[changed].unique().numel() >= LEAST_DISTINCT and any(
        bool(((one - two) % (1 << width) == 0).all())
        and -(1 << (width - 1)) <= int(two.min())
        and int(two.max()) < 1 << width
        for width in WIDTHS
    )


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Elements at the same places of all tensors of one shape."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(tensor.numel(), (SAMPLES,), generator=generator).to(tensor.device)
    at: list[torch.Tensor] = []
    for size in reversed(tensor.shape):  # torch.unravel_index imports sympy, which takes seconds
        at.insert(0, places % size)
        places = places // size
    return tensor.detach()[tuple(at)].reshape(-1)


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it has elements that can be read."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.is_complex()
        and tensor.numel() > 1
        and tensor.device.type != "meta"
    )
