"""Legal values that neither the task's generator nor another distribution makes.

Distributions are dense and centred on zero, within a few orders of magnitude. Kernels that are wrong
elsewhere pass them: a variance as ``E[x^2] - E[x]^2`` loses all digits far from zero, a norm without its
epsilon divides by zero in a row of zeros, a square overflows at 1e20, a scan whose rounds are counted for
random rows ends too early in a sorted one. And a file may treat a few values
apart: the numbers and bit patterns in its own text say which (:func:`constants`), so these are put into the
inputs.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.task.distributions import redraw
from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.task.unusual_kinds import (
    HUGE,
    LARGEST,
    LEAST,
    LEVEL,
    MINUTE,
    NEAR,
    OFFSET,
    PERIODIC,
    SORTED,
    TIES,
    ZEROS,
)
from egg.evaluator.tensors.reals import as_reals, narrowed

FREE = 4
"""A dimension shorter than this keeps all of its slices, the first one apart."""
LARGEST_CONSTANT = 1e4
"""Constants beyond are left out: masks by -1e30 and limits of types."""
NEXT = 16.0
"""Roundings between an extreme and the value next to it: more than the reference's inputs are shaken by."""
ABOVE = 4.0
"""The size that values drawn normally hardly reach."""
COARSEST = 1 << 8
"""Integers below are no bit patterns worth asking for."""
MOST_LINES = 12
"""That are laid beyond a constant, above or below."""
MANTISSA = {4: (torch.int32, 32), 2: (torch.int16, 16)}


@torch.no_grad()
def unusual(inputs: list[Any], name: str, seed: int) -> list[Any]:
    """``inputs`` with every floating tensor redrawn, and changed as ``name`` says."""
    lot = random.Random(seed)
    change = {
        OFFSET: lambda t: t.add_(
            lot.choice((-1, 1)) * (8.0 if t.itemsize < 4 else lot.uniform(300.0, 1000.0))
        ),
        HUGE: lambda t: t.mul_(16.0 if t.dtype is torch.float16 else 1e20),
        MINUTE: lambda t: t.mul_(1e-2 if t.dtype is torch.float16 else 1e-12),
        ZEROS: lambda t: _zeroed(t, lot),
        LEVEL: lambda t: _level(t, lot),
        TIES: lambda t: t.mul_(2.0).round_().mul_(0.5),
        LARGEST: lambda t: t.mul_(256.0 if t.dtype is torch.float16 else 1e30),
        LEAST: lambda t: t.mul_(1e-3 if t.dtype is torch.float16 else 1e-30),
        SORTED: _sorted,
        NEAR: lambda t: _near(t, torch.Generator(t.device).manual_seed(seed)),
        PERIODIC: lambda t: _periodic(t, torch.Generator(t.device).manual_seed(seed)),
    }[name]
    return _changed(redraw(inputs, "normal", seed), change)


def _changed(inputs: list[Any], change: Callable[[torch.Tensor], Any]) -> list[Any]:
    """Copies, each written through a form in which every element has memory of its own."""

    def one(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        made = restrided(tensor, lambda flat: as_reals(flat).clone())
        change(made.as_strided(*_distinct(made)))
        return restrided(made, lambda flat: narrowed(flat, tensor.dtype))

    return map_tensors(inputs, one)


def _distinct(tensor: torch.Tensor) -> tuple[list[int], list[int]]:
    """Size and strides without the repetitions of expanded dimensions."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [1 if stride == 0 else size for size, stride in pairs], list(tensor.stride())


def _zeroed(tensor: torch.Tensor, lot: random.Random) -> None:
    """One slice of every dimension is zero: rows, columns, channels, samples."""
    for dim, size in enumerate(tensor.shape):
        if size >= FREE or (dim == 0 and size > 1):
            tensor.select(dim, lot.randrange(size)).zero_()


def _level(tensor: torch.Tensor, lot: random.Random) -> None:
    """A quarter of the first dimension's slices have one value each: powers of two, which sum exactly."""
    size = tensor.shape[0] if tensor.dim() else 0
    for at in lot.sample(range(size), max(1, size // 4) if size > 1 else 0):
        tensor[at].fill_(lot.choice((-2.0, -0.5, 0.5, 1.0, 2.0)))


def _sorted(tensor: torch.Tensor) -> None:
    """Rising along every dimension; the first half of the leading one is negated, and so falls.

    Sorting the columns of an array with sorted rows leaves its rows sorted.
    """
    for dim in range(tensor.dim()):
        tensor.copy_(tensor.sort(dim).values)
    if tensor.dim() > 1:
        tensor[: tensor.shape[0] // 2].neg_()


def _near(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """In every line along the last dimension some other element is less than the largest by a few roundings,
    and one more than the least: a kernel that drops low bits of what it orders takes the wrong one."""
    size = tensor.shape[-1] if tensor.dim() else 0
    if size < FREE:
        return
    for sign in (1, -1):
        best, at = (sign * tensor).max(-1, keepdim=True)
        step = torch.randint(1, size, at.shape, generator=generator, device=tensor.device)
        less = best - NEXT * torch.finfo(tensor.dtype).eps / 2 * best.abs()
        tensor.scatter_(-1, (at + step) % size, sign * less)


def _periodic(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """In every line along the last dimension the largest values stand a power of two apart.

    A kernel that keeps a few candidates of each lane, or of each block, meets all of them in one.
    """
    size = tensor.shape[-1] if tensor.dim() else 0
    powers = int(math.log2(max(size, 1))) - 2
    if powers < 1:
        return
    shape, device = (*tensor.shape[:-1], 1), tensor.device
    step = 2 ** torch.randint(1, powers + 1, shape, generator=generator, device=device)
    first = torch.randint(0, size, shape, generator=generator, device=device)
    chosen = (torch.arange(size, device=device) - first) % step == 0
    tensor.copy_(torch.where(chosen, tensor.abs() + ABOVE, tensor))


@dataclass(frozen=True)
class Constants:
    """What stands in a file: numbers that an input may hold, and patterns of low bits with their masks."""

    values: tuple[float, ...]
    patterns: tuple[tuple[int, int], ...]
    """Mask and value."""

    def __or__(self, other: Constants) -> Constants:
        return Constants(
            tuple(dict.fromkeys((*self.values, *other.values))),
            tuple(dict.fromkeys((*self.patterns, *other.patterns))),
        )


def constants(source: str) -> Constants:
    """The numbers in a file's code; the sizes of blocks among them do no harm."""
    found = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    }
    numbers = sorted(abs(float(v)) for v in found if abs(v) <= LARGEST_CONSTANT and v)
    whole = sorted(abs(v) for v in found if isinstance(v, int) and COARSEST <= abs(v) < 1 << 32)
    masks = [v for v in whole if v & (v + 1) == 0]
    pairs = {((1 << v.bit_length()) - 1, v) for v in whole}
    pairs |= {(mask, v) for mask in masks for v in (0, mask, *whole) if v <= mask}
    return Constants(tuple(dict.fromkeys(numbers)), tuple(sorted(pairs)))


@torch.no_grad()
def with_constants(inputs: list[Any], known: Constants, seed: int) -> list[Any]:
    """Copies of ``inputs`` with the constants, their neighbours and negatives at places drawn by lot.

    No value comes twice, and at most half of a tensor is overwritten: of a longer list a sample is taken.
    """
    lot = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)

    def put(given: torch.Tensor) -> None:
        tensor = given if given.dim() else given.view(1)
        special = _special(tensor, known, lot)
        lot.shuffle(special)
        special = special[: max(1, tensor.numel() // 2)]
        if not special:
            return
        at = _places(tensor.numel(), len(special), generator)
        where = torch.unravel_index(at.to(tensor.device), tensor.shape)
        values = tensor[where]
        tensor[where] = torch.stack([make(v) for make, v in zip(special, values, strict=True)])

    if not known.values and not known.patterns:
        return inputs
    return _changed(inputs, put)


@torch.no_grad()
def beyond_constants(inputs: list[Any], known: Constants, dim: int, seed: int) -> list[Any]:
    """Copies of ``inputs`` in which some lines along ``dim`` lie wholly above a constant, or below it.

    What stands for "smaller than all" in a file, as a maximum's first value, is one of its constants.
    """
    lot = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)

    def put(tensor: torch.Tensor) -> None:
        limit = 64.0 if tensor.dtype is torch.float16 else LARGEST_CONSTANT
        ends = [s * v for v in known.values if 1.0 <= v <= limit for s in (1.0, -1.0)][-MOST_LINES:]
        if not tensor.dim():
            return
        lines = tensor.movedim(dim, -1)
        count = lines.numel() // max(lines.shape[-1], 1)
        places = lot.sample(range(count), min(len(ends), count // 2))
        for place, value in zip(places, reversed(ends), strict=False):
            drawn = torch.empty(lines.shape[-1]).uniform_(1.25, 2.5, generator=generator)
            lines[torch.unravel_index(torch.tensor(place), lines.shape[:-1])] = (value * drawn).to(lines)

    return _changed(inputs, put)


def _places(count: int, wanted: int, generator: torch.Generator) -> torch.Tensor:
    """Distinct places, in no order, without a permutation of all."""
    drawn = torch.randint(count, (4 * wanted,), generator=generator).unique()
    if len(drawn) < wanted:
        drawn = torch.arange(count)
    return drawn[torch.randperm(len(drawn), generator=generator)[:wanted]]


def _special(tensor: torch.Tensor, known: Constants, lot: random.Random) -> list[Any]:
    """Functions of what stands at a place that give what is to stand there."""
    limit = 64.0 if tensor.dtype is torch.float16 else LARGEST_CONSTANT
    made: list[Any] = []
    for value in known.values:
        exact = torch.tensor(value, dtype=tensor.dtype, device=tensor.device)
        if 0.0 < float(exact) <= limit:
            around = [exact, *(torch.nextafter(exact, exact.new_tensor(end)) for end in (math.inf, 0.0))]
            made += [lambda _, v=sign * v: v for v in around for sign in (1, -1)]
    if tensor.itemsize in MANTISSA:
        whole, bits = MANTISSA[tensor.itemsize]
        made += [
            lambda v, m=mask, b=value, w=whole: _patterned(v, m, b, w)
            for mask, value in known.patterns
            if mask < 1 << (bits - 9)
            for _ in range(2)
        ]
    return made


def _patterned(value: torch.Tensor, mask: int, bits: int, whole: torch.dtype) -> torch.Tensor:
    """``value`` with other low bits of its mantissa."""
    return ((value.reshape(1).view(whole) & ~mask) | bits).view(value.dtype)[0]
