"""The calls that are tried of one task, the most telling first.

All are made from one base (:mod:`benchmarks.domain.bases`) that was tried itself. The file was written for
the task as its user has it, so the base is already a call beside the captured one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.domain.calls import Call, Kind, copied
from benchmarks.domain.layouts import LAYOUTS, Change, Place, Sizes, changed
from benchmarks.domain.trial import Sides
from egg.evaluator.task.program import map_tensors

ODD = (3, 7)
LARGER, LARGE = 17, 5
"""A batch that fills more than one tile, and one for programs of which a call takes longer than ``SLOW``."""
SLOW = 1.0
OTHER_DIMENSIONS = 4
"""Dimensions besides the batch that are tried at another size."""
ARGUMENTS_TRIED = 8


@dataclass(frozen=True)
class Probes:
    """The calls of a task, made one after another: some depend on what the reference takes."""

    base: Call
    sides: Sides

    def __iter__(self) -> Iterator[Call]:
        yield from self._sizes()
        yield self.base.as_kind(Kind.AGAIN, "the captured call again")
        yield from self._layouts()
        yield self.base.as_kind(Kind.MODE, "train", train=True)
        yield self.base.as_kind(Kind.MODE, "eval", train=False)
        yield self.base.as_kind(Kind.GRADIENT, "under grad mode", gradient=True)
        yield from self._arguments()
        yield from self._numbers()
        yield from self._optional()
        yield from self._dtypes()
        yield self.base.as_kind(Kind.AGAIN, "with other weights", reweigh=True)

    # -- sizes ---------------------------------------------------------------------------------------

    def _sizes(self) -> Iterator[Call]:
        sizes = Sizes(self.base.inputs, self._runs)
        batch = self.batch
        if batch is None:
            return
        together: dict[Place, int] = {}
        odds = [size for size in ODD if size not in (sizes.size(batch), LARGE)]
        odd, found = next(((size, at) for size in odds if (at := sizes.at(batch, size))), (odds[0], {}))
        together.update(found)
        for size in (1, odd, LARGER if self.sides.slowest < SLOW else LARGE):
            change = dict.fromkeys(together, size)
            if change and size != sizes.size(batch) and sizes.takes(change):
                yield self._resized(f"batch {size}", change)
        alone = sizes.at(batch, 1)
        if alone is not None and alone.keys() != together.keys():
            yield self._resized("first dimension 1, which broadcasts", alone)
        touched, group = set(together), tuple(together)
        tried = 0
        for place in self._by_interest(sizes):
            if place in touched or tried >= OTHER_DIMENSIONS:
                continue
            change = self._moved(sizes, place)
            if change is None:
                continue
            touched |= change.keys()
            tried += 1
            together.update(change)
            yield self._resized(_named(change), change)
        if len(set(together.values())) > 1 and sizes.takes(together):
            yield self._resized("all free sizes at once", together)
        most = 64 if self.sides.slowest < SLOW else 8
        equal = next((sizes.size(p) for p in sizes.places() if p[1] and 1 < sizes.size(p) <= most), None)
        change = dict.fromkeys(group, equal) if equal not in (None, sizes.size(batch)) else {}
        if change and sizes.takes(change):
            yield self._resized(f"batch {equal}, as another dimension", change)

    @property
    def batch(self) -> Place | None:
        """The first dimension of the first input that has one."""
        for at, given in enumerate(self.base.inputs):
            if isinstance(given, torch.Tensor) and given.dim():
                return at, 0
        return None

    def _by_interest(self, sizes: Sizes) -> list[Place]:
        """The last dimensions first, one of each input before the next of any."""
        return sorted(sizes.places(), key=lambda place: -place[1])

    def _moved(self, sizes: Sizes, place: Place) -> Change | None:
        """Another size that the reference takes: an odd neighbour, else one that keeps divisibility."""
        size = sizes.size(place)
        for other in (size + 1 + size % 2, size + 1, size - 1, size + size // 2, 2 * size, size // 2):
            if (change := sizes.at(place, other)) is not None:
                return change
        return None

    def _runs(self, inputs: tuple[Any, ...]) -> bool:
        return not self.sides.refuses(self.base.as_kind(Kind.SIZES, "", inputs=inputs))

    def _resized(self, name: str, change: Change) -> Call:
        return self.base.as_kind(Kind.SIZES, name, inputs=changed(self.base.inputs, change))

    # -- layouts and dtypes --------------------------------------------------------------------------

    def _layouts(self) -> Iterator[Call]:
        for name, change in LAYOUTS.items():
            inputs, named = map_tensors((self.base.inputs, dict(self.base.named)), change)
            if any(a is not b for a, b in zip(inputs, self.base.inputs, strict=True)):
                yield self.base.as_kind(Kind.LAYOUT, name, inputs=inputs, named=named)

    def _dtypes(self) -> Iterator[Call]:
        given = [t for t in self.base.inputs if isinstance(t, torch.Tensor) and t.is_floating_point()]
        for dtype in (torch.bfloat16, torch.float16, torch.float32) if given else ():
            if dtype in {t.dtype for t in given}:
                continue

            def cast(tensor: torch.Tensor, dtype: torch.dtype = dtype) -> torch.Tensor:
                return tensor.to(dtype) if tensor.is_floating_point() else copied(tensor)

            inputs = map_tensors(self.base.inputs, cast)
            yield self.base.as_kind(Kind.DTYPE, f"in {str(dtype)[6:]}", inputs=inputs, dtype=dtype)

    # -- arguments -----------------------------------------------------------------------------------

    def _arguments(self) -> Iterator[Call]:
        """Each constructor argument on its own: floats moved, flags flipped, whole numbers beside."""
        tried = 0
        for name, value in self.base.arguments.items():
            for other in beside(value):
                call = self.base.as_kind(
                    Kind.ARGUMENTS, f"{name} = {other!r}", arguments={**self.base.arguments, name: other}
                )
                if tried < ARGUMENTS_TRIED and not self.sides.refuses(call):
                    tried += 1
                    yield call
                    break

    def _numbers(self) -> Iterator[Call]:
        """Arguments of ``forward`` that are no tensors, each on its own."""
        for at, value in enumerate(self.base.inputs):
            for other in beside(value):
                inputs = (*self.base.inputs[:at], other, *self.base.inputs[at + 1 :])
                call = self.base.as_kind(Kind.OPTIONAL, f"input {at} = {other!r}", inputs=inputs)
                if not self.sides.refuses(call):
                    yield call
                    break

    def _optional(self) -> Iterator[Call]:
        """Arguments of ``forward`` with a default: left out where they were given, given where not."""
        parameters = list(self.sides.signatures.forward.parameters.values())
        given = len(self.base.inputs)
        for at, parameter in enumerate(parameters):
            if parameter.default is parameter.empty or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
                continue
            if at < given:
                calls = [self._without(at, [p.name for p in parameters])]
            else:
                calls = [
                    self.base.as_kind(Kind.OPTIONAL, f"{parameter.name} given", named={parameter.name: other})
                    for other in self._given(parameter.default)
                ]
            for call in calls:
                if not self.sides.refuses(call):
                    yield call
                    break

    def _without(self, at: int, names: list[str]) -> Call:
        rest = dict(zip(names[at + 1 :], self.base.inputs[at + 1 :], strict=False))
        name = f"{names[at]} left out"
        return self.base.as_kind(Kind.OPTIONAL, name, inputs=self.base.inputs[:at], named=rest)

    def _given(self, default: Any) -> list[Any]:
        if default is not None:
            return list(beside(default))
        first = next((t for t in self.base.inputs if isinstance(t, torch.Tensor)), None)
        if first is None:
            return []
        mask = torch.rand(first.shape, device=first.device) < 0.5
        return [mask.to(first.dtype), mask]


def beside(value: Any) -> tuple[Any, ...]:
    """Values near one, in the order in which they are tried until the reference takes one."""
    match value:
        case bool():
            return (not value,)
        case int():
            return tuple(n for n in (value + 1, value - 1, 2 * value, value // 2) if n > 0 and n != value)
        case float():
            return (value * 1.5 + 0.05, value * 0.5, value + 1.0)
        case tuple() | list() if value and all(type(item) is int for item in value):
            return tuple(
                type(value)([*value[:at], value[at] + 1, *value[at + 1 :]]) for at in range(len(value))
            )
    return ()


def _named(change: Change) -> str:
    (at, dimension), size = next(iter(change.items()))
    more = f" and {len(change) - 1} more" if len(change) > 1 else ""
    return f"dimension {dimension} of input {at}{more} = {size}"
