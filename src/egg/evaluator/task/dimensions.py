"""Which dimensions of a task's input tensors can be changed, each alone or several together.

The integers of a task's source say little about that: one literal may stand for two sizes, and a small one is
no size at all for :mod:`egg.evaluator.task.knobs`. Here the tensors themselves are resized, and a forward on
tensors without data tells whether the program takes them. A dimension is moved alone first. One that does not
move alone is moved together with dimensions of the same size, as few as will do. One that still does not move
keeps its divisors: it moves in steps of the smallest divisor with which the program runs.

A dimension that a constructor's argument decides (the features of a linear layer) moves in none of these
ways and belongs to no :class:`Axis`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import torch
from torch import nn

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.evaluator.task.dataless import META, forward_without_data
from egg.evaluator.task.distinct import continued
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.program import Program, outputs_of

RUNS = 120
"""Forwards without data that one search may take: a count and no clock, so that machines find the same."""
MOST_STEPS = 8
"""Divisors of a size that are tried as its step."""

Path = tuple[int | str, ...]
"""Where a tensor lies in the inputs: the argument's place, then keys of lists and dictionaries."""


@dataclass(frozen=True, order=True)
class Place:
    """One dimension of one input tensor."""

    path: Path
    dim: int


Sizes = Mapping[Place, int]


@dataclass(frozen=True)
class Axis:
    """Dimensions of one size that the caller may choose; they change together or not at all."""

    places: tuple[Place, ...]
    size: int
    """At the program's own size."""
    step: int = 1
    """Values differ from :attr:`size` by multiples of this."""
    seen: tuple[int, ...] = ()
    """Other values at which the program ran while everything else was as it is."""

    def at(self, value: int) -> dict[Place, int]:
        return dict.fromkeys(self.places, value)


# -- inputs ----------------------------------------------------------------------------------------------


def leaves(inputs: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """The tensors of nested lists, tuples and dictionaries, with the path to each."""
    if isinstance(inputs, torch.Tensor):
        yield path, inputs
    elif isinstance(inputs, list | tuple):
        for place, item in enumerate(inputs):
            yield from leaves(item, (*path, place))
    elif isinstance(inputs, Mapping):
        for key, item in inputs.items():
            yield from leaves(item, (*path, key))


def resized(inputs: list[Any], sizes: Sizes) -> list[Any]:
    """``inputs`` with other sizes in some places.

    The order of the strides is kept: what was channels-last or transposed is it still. Tensors with data
    repeat their elements along a dimension that grows and lose the last ones of one that shrinks, so that
    indices, masks and lengths stay legal; integers that all differ go on with others
    (:mod:`egg.evaluator.task.distinct`). Every resized tensor is a new one without gaps.
    """
    wanted: dict[Path, dict[int, int]] = {}
    for place, size in sizes.items():
        wanted.setdefault(place.path, {})[place.dim] = size
    return [_replaced(item, (place,), wanted) for place, item in enumerate(inputs)]


def _replaced(item: Any, path: Path, wanted: Mapping[Path, Mapping[int, int]]) -> Any:
    if isinstance(item, torch.Tensor):
        changes = {dim: n for dim, n in wanted.get(path, {}).items() if item.shape[dim] != n}
        return _resized(item, changes) if changes else item
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_replaced(inner, (*path, at), wanted) for at, inner in enumerate(item)))
    if isinstance(item, list | tuple):
        return type(item)(_replaced(inner, (*path, at), wanted) for at, inner in enumerate(item))
    if isinstance(item, dict):
        return {key: _replaced(inner, (*path, key), wanted) for key, inner in item.items()}
    return item


def _resized(tensor: torch.Tensor, changes: Mapping[int, int]) -> torch.Tensor:
    shape = [changes.get(dim, size) for dim, size in enumerate(tensor.shape)]
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    made = torch.empty([shape[dim] for dim in order], dtype=tensor.dtype, device=tensor.device)
    made = made.permute([order.index(dim) for dim in range(tensor.dim())])
    if tensor.device.type != "meta":
        data = tensor.detach()
        for dim, size in changes.items():
            data = _of_size(data, dim, size)
        made.copy_(data)
    return made.requires_grad_(tensor.requires_grad)


def _of_size(data: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    distinct = continued(data, dim, size)
    if distinct is not None:
        return distinct
    at = torch.arange(size, device=data.device) % max(data.shape[dim], 1)
    return data.index_select(dim, at)


@dataclass(frozen=True)
class Varied(Program):
    """A task with other sizes of its inputs, other arguments of its constructor, other values of forward."""

    sizes: Sizes = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """By the name of the constructor's parameter."""
    values: Mapping[int, Any] = field(default_factory=dict)
    """By the place in the inputs."""
    training: bool | None = None
    """The mode to put the module into; ``None`` for its own."""

    @classmethod
    def of(cls, program: Program, **changes: Any) -> Varied:
        return cls(program.task, program.module, **changes)

    def init_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        if not self.arguments:
            return super().init_arguments()
        bound = self._bound()
        return list(bound.args), dict(bound.kwargs)

    def bound_arguments(self) -> dict[str, Any]:
        """Every argument of the constructor by name, defaults included.

        A model without a constructor of its own has that of ``nn.Module``, which takes ``*args`` and
        ``**kwargs`` and accepts none.
        """
        found = dict(self._bound().arguments)
        if self.module.__dict__["Model"].__init__ is nn.Module.__init__:
            return {name: value for name, value in found.items() if value}
        return found

    def _bound(self) -> inspect.BoundArguments:
        args, kwargs = super().init_arguments()
        bound = self._signature().bind(*args, **kwargs)
        bound.apply_defaults()
        bound.arguments.update(self.arguments)
        return bound

    def inputs(self, seed: int, device: torch.device, precision: Precision) -> list[Any]:
        made = resized(super().inputs(seed, device, precision), self.sizes)
        return [self.values.get(place, value) for place, value in enumerate(made)]

    def build(self, seed: int, device: torch.device, precision: Precision) -> nn.Module:
        module = super().build(seed, device, precision)
        return module if self.training is None else module.train(self.training)


# -- running ---------------------------------------------------------------------------------------------


@dataclass
class Rehearsal:
    """A program that is run without data again and again, on inputs of other sizes.

    The module is built once, and again after a forward that left something else in it.
    """

    program: Program
    left: int = RUNS
    _module: nn.Module | None = None
    _before: tuple[int, ...] = ()
    _known: dict[frozenset[tuple[Place, int]], tuple[Any, ...] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given = self.program.inputs(0, META, Precision.MATCH)

    @property
    def module(self) -> nn.Module:
        if self._module is None:
            self._module = on_meta(self.program)
            self._before = _state(self._module)
        return self._module

    def runs(self, sizes: Sizes) -> bool:
        return self.record(sizes) is not None

    def record(self, sizes: Sizes) -> tuple[Any, ...] | None:
        """What the program calls, with the rank of every result; ``None`` where it does not run."""
        key = frozenset(sizes.items())
        if key not in self._known:
            if self.left <= 0:
                return None
            self.left -= 1
            self._known[key] = self._recorded(sizes)
        return self._known[key]

    def _recorded(self, sizes: Sizes) -> tuple[Any, ...] | None:
        try:
            result, calls = forward_without_data(
                self.program, self.module, resized(self.given, sizes), recorded=True
            )
            ranks = tuple(v.dim() if isinstance(v, torch.Tensor) else -1 for _, v in outputs_of(result))
        except (TaskError, MachineError):
            self._module = None
            return None
        if _state(self.module) != self._before:
            self._module = None
        return (*calls, ranks)


def _state(module: nn.Module) -> tuple[int, ...]:
    """The identity of everything that the modules hold, so that a new tensor in an attribute is seen."""
    found: list[int] = []
    for part in module.modules():
        for held in vars(part).values():
            found.append(id(held))
            inner = (
                held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
            )
            found += map(id, inner)
    return tuple(found)


# -- searching -------------------------------------------------------------------------------------------


def axes(program: Program, runs: int = RUNS) -> tuple[Axis, ...]:
    """The axes of a task at its own size; nothing for a program that does not run without data."""
    return axes_of(Rehearsal(program, runs))


def axes_of(rehearsal: Rehearsal) -> tuple[Axis, ...]:
    return _Search(rehearsal).found() if rehearsal.runs({}) else ()


@dataclass
class _Search:
    rehearsal: Rehearsal

    def __post_init__(self) -> None:
        self.sizes = {
            Place(path, dim): size
            for path, tensor in leaves(self.rehearsal.given)
            for dim, size in enumerate(tensor.shape)
        }
        held = (*self.rehearsal.module.parameters(), *self.rehearsal.module.buffers())
        self.taken = {*self.sizes.values(), *(size for tensor in held for size in tensor.shape)}

    def found(self) -> tuple[Axis, ...]:
        made: list[Axis] = []
        for trial in (self._alone, self._together, self._stepped):
            for place in self.sizes:
                if not any(place in axis.places for axis in made):
                    stuck = [p for p in self.sizes if not any(p in axis.places for axis in made)]
                    axis = trial(place, stuck)
                    made += [axis] if axis is not None else []
        return tuple(sorted(made, key=lambda axis: axis.places))

    def _alone(self, place: Place, stuck: Sequence[Place]) -> Axis | None:
        """Not one of several batches of 1: each of them would be repeated to the others' size."""
        batch = [p for p in stuck if (p.dim, self.sizes[p]) == (place.dim, 1)]
        return None if self.sizes[place] == 1 and len(batch) > 1 else self._moved((place,))

    def _together(self, place: Place, stuck: Sequence[Place]) -> Axis | None:
        """With one other, with those of the same position, with all of its size less what is not needed."""
        equal = [p for p in stuck if self.sizes[p] == self.sizes[place]]
        others = [p for p in equal if p != place]
        if not others:
            return None
        same = [p for p in equal if p.dim == place.dim]
        groups = [*([place, p] for p in others), same, equal] if self.sizes[place] > 1 else [same]
        tried: set[frozenset[Place]] = set()
        for group in groups:
            if len(group) < 2 or frozenset(group) in tried:
                continue
            tried.add(frozenset(group))
            if (axis := self._moved(tuple(group))) is not None:
                return self._least(place, axis) if axis.size > 1 else axis
        return None

    def _least(self, place: Place, axis: Axis) -> Axis:
        """Without the places that need not move with ``place``."""
        for gone in axis.places if len(axis.places) > 2 else ():
            rest = tuple(p for p in axis.places if p != gone)
            if gone != place and len(rest) > 1 and (smaller := self._moved(rest)) is not None:
                axis = smaller
        return replace(axis, places=tuple(sorted(axis.places)))

    def _stepped(self, place: Place, stuck: Sequence[Place]) -> Axis | None:
        size = self.sizes[place]
        equal = tuple(p for p in stuck if self.sizes[p] == size)
        same = tuple(p for p in equal if p.dim == place.dim)
        for group in dict.fromkeys([(place,), same, equal]):
            for step in divisors(size)[:MOST_STEPS]:
                values = (size + step, 3 * size)
                if all(self.rehearsal.runs(dict.fromkeys(group, value)) for value in values):
                    return Axis(group, size, step, values)
        return None

    def _moved(self, places: tuple[Place, ...]) -> Axis | None:
        """The places at two other values, one near and one far: larger ones, else smaller ones."""
        size = self.sizes[places[0]]
        for near, far, by in ((size + 1, 2 * size + 3, 2), (size - 1, size // 2, -2)):
            first = fresh(near, size, self.taken, by)
            values = (first, fresh(far, size, {*self.taken, first}, by))
            if min(values) > 1 and all(self.rehearsal.runs(dict.fromkeys(places, v)) for v in values):
                return Axis(tuple(sorted(places)), size, 1, values)
        return None


def fresh(start: int, size: int, taken: Collection[int], by: int = 2) -> int:
    """An odd value that shares no divisor with ``size`` and is no other size; below 2 where there is none."""
    value = start | 1
    while value > 1 and (value in taken or gcd(value, size) > 1):
        value += by
    return value


def divisors(size: int) -> list[int]:
    """Those above one, the smallest first, and the size itself."""
    return [n for n in range(2, min(size, 257)) if size % n == 0] + ([size] if size > 1 else [])
