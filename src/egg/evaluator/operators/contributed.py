"""Whether own kernels contribute to an answer, or carry values to and from operators of PyTorch.

How much work a library did is an estimate by operator, and another algorithm takes less: a convolution by
transforms, a product of complex numbers of half the size, a softmax by a scan. So the values are followed
instead. A few calls on different inputs give every element a column of numbers. An element is *carried* where
its column is constant, or a multiple of the column of one element that was there before, plus a constant:
kernels that copy, pad, permute, pack, scale or shift carry, whatever they do on the way. Sums of several
elements, products of them, norms and every function that is not linear over the draws do not.

From the answer back: the first operator that made what it carries, what that read, and so on to the inputs.
Where every step is carried, operators of PyTorch alone computed, and what else ran had no effect on it.

A file may make large tensors, or other ones at each call. What is too large is not kept, and steps that not
all calls have are left out: where the answer comes from them it is not found, and own kernels count as having
computed it. What the answer does not come from ends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from egg.evaluator.operators.runs import plain, tensors_in

SAMPLES = 64
LARGEST = 1 << 20
"""Elements of a tensor that is kept, and eight times as many in a call of those that operators computed, and
again of the others."""
MOST = 1 << 23
ENOUGH = 0.9
"""Of a tensor's samples that are carried."""
NEAR = 1e-3
"""The angle between two columns that count as one: far below what a norm over thousands of elements turns."""
ROUNDINGS = 64.0
"""By which such an angle may be off where rounding alone turns it: what is added and taken off again is
larger than the rest, and rounds by its own size."""
UNLIKELY = 1e6
CONSTANT = 1e-9
PIECE = 1 << 16
"""Columns that are compared at a time."""


@dataclass(frozen=True)
class Step:
    """An operator: samples of what it read, and everything that it made."""

    read: tuple[torch.Tensor, ...]
    made: tuple[torch.Tensor, ...]
    computes: bool
    opaque: bool = False
    """Whether it read something that cannot be looked at."""

    @property
    def form(self) -> tuple[Any, ...]:
        return _sizes(self.read), _sizes(self.made), self.computes, self.opaque


@dataclass
class Draw:
    """One call, as a recorder's ``flow``."""

    seed: int
    inputs: tuple[torch.Tensor, ...] = ()
    steps: list[Step] = field(default_factory=list)
    outputs: tuple[torch.Tensor, ...] = ()
    opaque: bool = False
    """Whether some output cannot be looked at."""
    copied: list[Draw] = field(default_factory=list)
    """The same call with kernels that copy, one for each choice of what they copy."""
    _read: tuple[tuple[torch.Tensor, ...], bool] = (), False
    _kept: Counter[bool] = field(default_factory=Counter)

    def begin(self, inputs: Any) -> None:
        self.inputs = self._all(inputs, computed=True)

    def given(self, operands: Any) -> bool:
        """What an operator is about to read."""
        self._read = self._samples(operands)
        return False

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        read, opaque = self._read
        self.steps.append(Step(read, self._all(result, computed=computes), computes, opaque))

    def end(self, outputs: Any) -> None:
        self.outputs, self.opaque = self._samples(outputs)

    @property
    def form(self) -> tuple[Any, ...]:
        """Draws of one form can be compared."""
        return _sizes(self.inputs), tuple(step.form for step in self.steps), _sizes(self.outputs)

    def _all(self, values: Any, *, computed: bool) -> tuple[torch.Tensor, ...]:
        kept: list[torch.Tensor] = []
        for tensor in tensors_in(values):
            if 0 < tensor.numel() <= min(LARGEST, MOST - self._kept[computed]):
                dense = _dense(tensor)
                self._kept[computed] += tensor.numel()
                kept += [dense.reshape(-1).clone()] if dense is not None else []
        return tuple(kept)

    def _samples(self, values: Any) -> tuple[tuple[torch.Tensor, ...], bool]:
        """Of each tensor, and whether there is one of which none can be taken."""
        found = [_dense(tensor) for tensor in tensors_in(values) if tensor.numel()]
        seen = [one for one in found if one is not None]
        return tuple(map(self._sampled, seen)), len(seen) < len(found)

    def _sampled(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same places in every draw; a few numbers may be expanded to any size."""
        generator = torch.Generator().manual_seed(self.seed)
        places = torch.randint(tensor.numel(), (SAMPLES,), generator=generator).to(tensor.device)
        if tensor.numel() <= LARGEST:
            return tensor.reshape(-1)[places].cpu()
        return tensor[torch.unravel_index(places, tensor.shape)].cpu()


def _dense(tensor: torch.Tensor) -> torch.Tensor | None:
    """Real elements, also of a tensor that is stored otherwise; ``None`` where there is no way to them."""
    if tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested):
        return plain(tensor)
    if tensor.is_nested or tensor.numel() > LARGEST:
        return None
    try:
        return plain(tensor.dequantize() if tensor.is_quantized else tensor.to_dense())
    except (RuntimeError, NotImplementedError):
        return None


def _sizes(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    return tuple((tensor.numel(), tensor.dtype) for tensor in tensors)


def alike(draws: Sequence[Draw]) -> list[Draw]:
    """Those of the most usual form."""
    [(usual, _)] = Counter(draw.form for draw in draws).most_common(1)
    return [draw for draw in draws if draw.form == usual]


def aligned(draws: Sequence[Draw]) -> list[Draw]:
    """Draws of one form: of each kind of step as many, counted from the end, as all of them have."""
    [(ends, _)] = Counter((_sizes(draw.inputs), _sizes(draw.outputs)) for draw in draws).most_common(1)
    usual = [draw for draw in draws if (_sizes(draw.inputs), _sizes(draw.outputs)) == ends]
    named = [_by_occurrence(draw.steps) for draw in usual]
    common = [key for key in named[0] if all(key in steps for steps in named)]
    return [
        replace(draw, steps=[steps[key] for key in common]) for draw, steps in zip(usual, named, strict=True)
    ]


def _by_occurrence(steps: Sequence[Step]) -> dict[Any, Step]:
    """By form and how many of the form follow, in the order in which they ran."""
    left = Counter(step.form for step in steps)
    named: dict[Any, Step] = {}
    for step in steps:
        left[step.form] -= 1
        named[step.form, left[step.form]] = step
    return named


def contributes(draws: Sequence[Draw], *, exact: bool = False) -> bool:
    """Whether something but operators of PyTorch computed: in doubt, yes. The draws have one form.

    ``exact``: what is carried differs by rounding alone, or something computed.
    """
    if any(draw.opaque for draw in draws):
        return True
    trace = _Trace(draws, exact=exact)
    pending = [
        (len(draws[0].steps), _columns(outputs)) for outputs in zip(*(d.outputs for d in draws), strict=True)
    ]
    seen: set[int] = set()
    while pending:
        before, wanted = pending.pop()
        found = trace.carried_from(wanted, before)
        if found is None:
            return True
        for number in found - seen:
            if draws[0].steps[number].opaque:
                return True
            seen.add(number)
            read = zip(*(draw.steps[number].read for draw in draws), strict=True)
            pending += [(number, _columns(tensors)) for tensors in read]
    return not any(draws[0].steps[number].computes for number in seen)


@dataclass(frozen=True)
class _Columns:
    """Of each element its numbers in all draws: directions without their mean, and how far rounding turns
    them. Integers are told by their numbers alone."""

    floating: bool
    raw: torch.Tensor
    directions: torch.Tensor
    blur: torch.Tensor
    constant: torch.Tensor


def _columns(tensors: Sequence[torch.Tensor]) -> _Columns:
    raw = torch.stack([tensor.to(device="cpu", dtype=torch.float64) for tensor in tensors])
    apart = raw - raw.mean(0)
    size, spread = raw.norm(dim=0), apart.norm(dim=0)
    floating = tensors[0].is_floating_point()
    unit = torch.finfo(tensors[0].dtype).eps if floating else 0.0
    constant = ~(spread > max(CONSTANT, unit) * size)  # NaN in some draw says nothing, and is no value
    blur = unit * size / spread.clamp_min(1e-300)
    return _Columns(floating, raw, apart / spread.clamp_min(1e-300), blur, constant)


class _Trace:
    """Everything that was there to be carried, in the order in which it came."""

    def __init__(self, draws: Sequence[Draw], *, exact: bool) -> None:
        self._exact = exact
        self._sources: list[tuple[int, _Columns]] = []
        self._add(-1, [draw.inputs for draw in draws])
        for number in range(len(draws[0].steps)):
            self._add(number, [draw.steps[number].made for draw in draws])

    def _add(self, number: int, made: Sequence[Sequence[torch.Tensor]]) -> None:
        """What is the same in all draws is nothing that is carried."""
        for tensors in zip(*made, strict=True):
            if any(not torch.equal(tensors[0], other) for other in tensors[1:]):
                self._sources.append((number, _columns(tensors)))

    def carried_from(self, wanted: _Columns, before: int) -> set[int] | None:
        """The operators that first made what is carried; ``None`` where too much is not."""
        left = ~wanted.constant
        found: set[int] = set()
        for number, source in self._sources:
            if number >= before or not left.any():
                break
            if source.floating != wanted.floating:
                continue
            hits = (
                _near(wanted, source, self._exact) if wanted.floating else _equal(wanted, source, self._exact)
            )
            if number >= 0 and bool((hits & left).any()):
                found.add(number)
            left &= ~hits
        return found if float(left.double().mean()) <= 1.0 - ENOUGH else None


def _near(wanted: _Columns, source: _Columns, exact: bool) -> torch.Tensor:
    """Whether some column of the source is one with each that is wanted."""
    least = torch.full_like(wanted.blur, NEAR)
    if exact:
        least = torch.maximum(2.0 * wanted.blur, (ROUNDINGS * wanted.blur).clamp_max(NEAR))
    hits = torch.zeros_like(wanted.constant)
    for start in range(0, source.blur.numel(), PIECE):
        piece = slice(start, start + PIECE)
        cosine = (wanted.directions.T @ source.directions[:, piece]).abs()
        angle = (2.0 * (1.0 - cosine)).clamp_min(0.0).sqrt()
        blur = torch.zeros_like(source.blur[piece]) if exact else source.blur[piece]
        allowed = torch.maximum(wanted.blur[:, None] + blur[None], least[:, None])
        hits |= ((angle <= allowed) & ~source.constant[None, piece]).any(1)
    return hits


def _equal(wanted: _Columns, source: _Columns, exact: bool) -> torch.Tensor:
    """Small integers are like others by chance: a tensor counts where every sample of it is found, and the
    samples differ from one another. ``exact``: or each by itself, where none is like others by chance."""
    told = exact and _is_told(wanted, source)
    if not told and wanted.raw.unique(dim=1).shape[1] < SAMPLES // 4:
        return torch.zeros_like(wanted.constant)
    hits = torch.stack([(source.raw == column[:, None]).all(0).any() for column in wanted.raw.T])
    return hits if told or bool((hits | wanted.constant).all()) else torch.zeros_like(hits)


def _is_told(wanted: _Columns, source: _Columns) -> bool:
    """Whether numbers are so many that a column is none of the source's by chance."""
    return wanted.raw.unique().numel() ** float(wanted.raw.shape[0]) >= UNLIKELY * source.constant.numel()
