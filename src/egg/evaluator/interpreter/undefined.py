"""Results that the language leaves undefined: another machine's answer, drawn for each program.

A float that its integer type does not hold, an integer division by zero, a shift by the width of its type,
an index of ``tl.gather`` outside the tile: numpy answers them in one way, a GPU in another, and the compiler
may assume that they never happen. A kernel may compute such values in lanes that it never uses, so they are
no fault by themselves. Each program draws which machine it runs on (:class:`Machine`): numpy's answers, a
GPU's, or for each lane one of them or any bits. A kernel that uses an undefined value then differs from
itself, and so from its reference. The machine is one for the whole program: a kernel that asks several
undefined values for the same thing meets a GPU that agrees with itself.

Where memory lies is open, too: the address that a pointer has as an integer is drawn
(:func:`drawn_address`), with the alignment and the distances within a tensor that it has.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

_PAGE_BITS = 21
_USUAL = 0x7F << 40
"""Where CUDA mostly finds room for a GPU's memory; any other place below 2**47 may be it."""


class Answers(Enum):
    """Whose answers a program gets."""

    NUMPY = auto()
    DEVICE = auto()
    ANY = auto()


_ANSWERS = tuple(Answers)


@dataclass
class Machine:
    """What the running program runs on. A value of the process: programs that take turns are threads."""

    answers: Answers = Answers.NUMPY
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(secrets.randbits(64)))

    first: int = 0
    native: bool = False
    """Whether every program gets numpy's answers."""

    def launch(self) -> None:
        """Draw anew which of the launch's programs run on what."""
        self.first = secrets.randbelow(2**31)

    def begin(self, program: int) -> None:
        """A program begins, or goes on: always on the same machine within a launch."""
        drawn = _ANSWERS[hash((self.first, program)) % len(_ANSWERS)]
        self.answers = Answers.NUMPY if self.native else drawn


MACHINE = Machine()


@contextmanager
def native() -> Iterator[None]:
    """Meanwhile undefined values are those of this CPU.

    For questions whose inputs are so unusual that the reference itself computes such values: a program that
    makes integers of its floats has no other answer to 1e30 than its machine's.
    """
    MACHINE.native = True
    try:
        yield
    finally:
        MACHINE.native = False


def settle(result: np.ndarray, device: np.ndarray, undefined: np.ndarray) -> np.ndarray:
    """``result`` with the lanes that are ``undefined`` answered by the machine of this program."""
    if MACHINE.answers is Answers.NUMPY:
        return result
    undefined = np.broadcast_to(undefined, result.shape)
    device = np.broadcast_to(device, result.shape)
    if MACHINE.answers is Answers.DEVICE:
        return np.where(undefined, device, result).astype(result.dtype, copy=False)
    draw = MACHINE.random.integers(3, size=result.shape)
    some = np.where(draw == 0, result, np.where(draw == 1, device, any_bits(result)))
    return np.where(undefined, some, result).astype(result.dtype, copy=False)


def any_bits(like: np.ndarray) -> np.ndarray:
    """Another value for each lane of ``like``, of its type."""
    drawn = MACHINE.random.integers(0, 256, size=like.size * like.itemsize, dtype=np.uint8)
    if like.dtype == np.bool_:
        return (drawn & 1).astype(bool).reshape(like.shape)
    return drawn.view(like.dtype).reshape(like.shape)


# integers


def whole(values: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Floats as integers. A GPU saturates at 32 or 64 bits, makes NaN zero and keeps the low bits."""
    result = values.astype(kind)
    if kind == np.bool_:
        return result
    limits = np.iinfo(kind)
    low, above = float(limits.min), float(limits.max) + 1
    held = ((values > low - 1) | (values == low)) & (values < above)
    if held.all():
        return result
    wide = np.iinfo(f"{kind.kind}{max(4, kind.itemsize)}")
    plain = np.where(np.isnan(values), 0, values)
    inside = (plain > float(wide.min) - 1) & (plain < float(wide.max) + 1)
    saturated = np.where(inside, plain, 0).astype(wide.dtype)
    saturated = np.where(inside, saturated, np.where(plain > 0, wide.max, wide.min).astype(wide.dtype))
    return settle(result, saturated.astype(kind), ~held)


def divided(result: np.ndarray, left: np.ndarray, right: np.ndarray, remainder: bool) -> np.ndarray:
    """By zero a GPU's quotient is all ones and its remainder the dividend; the least integer by -1 wraps."""
    if result.dtype.kind not in "iu":
        return result
    undefined = right == 0
    if result.dtype.kind == "i" and (right == -1).any():
        undefined = undefined | ((right == -1) & (left == np.iinfo(left.dtype).min))
    if not undefined.any():
        return result
    ones = np.array(~result.dtype.type(0))
    return settle(result, left if remainder else ones, undefined)


def shifted(result: np.ndarray, left: np.ndarray, by: np.ndarray, shift: Any) -> np.ndarray:
    """By its width or more, or by less than nothing: no bits are left, or the amount's low bits count."""
    width = 8 * left.itemsize
    undefined = by >= width
    if by.dtype.kind == "i":
        undefined = undefined | (by < 0)
    if left.dtype.kind not in "iu" or not undefined.any():
        return result
    return settle(result, shift(left, by & by.dtype.type(width - 1)), undefined)


# floats


def not_a_number(values: np.ndarray, bf16: bool) -> np.ndarray:
    """The NaN that arithmetic gives: on a GPU all ones without a sign; of doubles the sign is open."""
    kind = np.dtype(f"u{values.itemsize}")
    if bf16:
        nan = (values & 0x7FFF) > 0x7F80
    elif values.dtype.kind == "f":
        nan = np.isnan(values)
    else:
        return values
    if not nan.any():
        return values
    ones = kind.type(
        np.iinfo(kind).max >> (0 if kind.itemsize == 8 and MACHINE.answers is Answers.ANY else 1)
    )
    return np.where(nan, ones, values.view(kind)).view(values.dtype)


# tiles


def gathered(source: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    """An index outside the tile reads other lanes, or other memory."""
    length = source.shape[axis]
    inside = np.take_along_axis(source, index.astype(np.int64) % length, axis=axis)
    undefined = (index < 0) | (index >= length)
    return settle(inside, any_bits(inside), undefined) if undefined.any() else inside


def counted(histogram: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """A histogram's values outside its bins are left out, or counted by their low bits."""
    outside = (values < 0) | (values >= histogram.size)
    if mask is not None:
        outside = outside & mask
    if not outside.any() or MACHINE.answers is Answers.NUMPY:
        return histogram
    low = values[outside].astype(np.int64) & (histogram.size - 1)
    return (histogram + np.bincount(low, minlength=histogram.size)).astype(histogram.dtype)


# addresses


def drawn_address(alignment: int) -> int:
    """Where a storage lies on some GPU; ``alignment`` are the low bits of its address."""
    bits = 40 if secrets.randbits(1) else 33 + secrets.randbelow(14)
    start = _USUAL if bits == 40 else 1 << bits
    return start + (secrets.randbelow(1 << (bits - _PAGE_BITS)) << _PAGE_BITS) + alignment
