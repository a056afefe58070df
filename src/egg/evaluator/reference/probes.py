"""Calls beside the captured one: other sizes, layouts, arguments, modes and dtypes.

A :class:`Change` says what differs from the task's own call. It is a value: it can be split into the parts
that differ, and a part can be made smaller, which is how the smallest example of a wrong answer is found.
The changes are made on tensors and not on the task's source, so that they exist for every task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.dimensions import Axis, Path, Place, Rehearsal, Varied, axes, leaves, resized
from egg.evaluator.task.program import Program, form_of, map_tensors

RUNS = 60
"""Forwards without data for the search of a task's free dimensions."""
MOST_ARGUMENTS = 12
SMALL = 1 << 22
"""Elements of all inputs up to which a size may be doubled."""


class Form(StrEnum):
    """How a tensor lies in memory, otherwise than the task's own."""

    TRANSPOSED = "transposed"
    STRIDED = "every second element"
    OFFSET = "offset by one element"
    EXPANDED = "expanded"
    CHANNELS_LAST = "channels-last"


@dataclass(frozen=True)
class Change:
    """What differs from the task's own call; nothing, where all is empty."""

    sizes: tuple[tuple[Axis, int], ...] = ()
    forms: tuple[tuple[Path, tuple[Form, ...]], ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()
    values: tuple[tuple[int, Any], ...] = ()
    """Numbers among the inputs, by their place."""
    training: bool | None = None
    precision: Precision | None = None

    @property
    def builds(self) -> bool:
        """Whether it needs another module, built otherwise."""
        return bool(self.arguments) or self.precision is not None

    @property
    def degenerate(self) -> bool:
        """Whether values along a dimension are all the same one: what a norm divides by is then rounding."""
        equal = any(Form.EXPANDED in forms for _, forms in self.forms)
        return equal or any(value == 1 for _, value in self.sizes)

    def parts(self) -> Iterator[Change]:
        """Each thing that differs, alone; nothing for a change of one thing."""
        found = [
            *(Change(sizes=(size,)) for size in self.sizes),
            *(Change(forms=((path, (form,)),)) for path, forms in self.forms for form in forms),
            *(Change(arguments=(argument,)) for argument in self.arguments),
            *(Change(values=(value,)) for value in self.values),
            *([Change(training=self.training)] if self.training is not None else []),
            *([Change(precision=self.precision)] if self.precision is not None else []),
        ]
        yield from found if len(found) > 1 else ()

    def smaller(self) -> Iterator[Change]:
        """The same with smaller sizes, the smallest first."""
        for at, (axis, value) in enumerate(self.sizes):
            for less in (axis.size % axis.step or axis.step, 2 * axis.step, 3 * axis.step):
                if less < value and less != axis.size and (less - axis.size) % axis.step == 0:
                    yield replace(self, sizes=(*self.sizes[:at], (axis, less), *self.sizes[at + 1 :]))

    def program(self, program: Program) -> Varied:
        return Varied.of(program, arguments=dict(self.arguments))

    def inputs(self, given: list[Any], seed: int) -> list[Any]:
        """The task's inputs with this change; what was resized is not merely repeated."""
        sizes: dict[Place, int] = {}
        for axis, value in self.sizes:
            sizes |= axis.at(value)
        made = resized(given, sizes)
        generator = torch.Generator().manual_seed(seed)
        before = dict(leaves(given))
        formed = dict(self.forms)
        changed = {
            path: _formed(_varied(tensor, before[path], generator), formed.get(path, ()))
            for path, tensor in leaves(made)
        }
        made = _with(made, changed)
        return [dict(self.values).get(place, value) for place, value in enumerate(made)]

    def init(self, program: Program) -> tuple[list[Any], dict[str, Any]]:
        """The constructor's arguments as the task gives them, those that differ replaced or added by name."""
        args, kwargs = program.init_arguments()
        names = list(program.bound_arguments())
        for name, value in self.arguments:
            place = names.index(name)
            if place < len(args):
                args[place] = value
            else:
                kwargs[name] = value
        return args, kwargs


def _with(item: Any, changed: Mapping[Path, torch.Tensor], path: Path = ()) -> Any:
    if isinstance(item, torch.Tensor):
        return changed[path]
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(_with(inner, changed, (*path, at)) for at, inner in enumerate(item)))
    if isinstance(item, list | tuple):
        return type(item)(_with(inner, changed, (*path, at)) for at, inner in enumerate(item))
    if isinstance(item, dict):
        return {key: _with(inner, changed, (*path, key)) for key, inner in item.items()}
    return item


def _varied(tensor: torch.Tensor, before: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Where it grew, elements that were repeated become different ones, no larger; masks stay masks."""
    if tensor.numel() <= before.numel() or not tensor.is_floating_point() or tensor.device.type == "meta":
        return tensor
    if len(torch.unique(before.flatten()[:4096])) <= 2:
        return tensor
    factors = torch.rand(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
    return tensor * (1.0 - 0.25 * factors)


def _formed(tensor: torch.Tensor, forms: tuple[Form, ...]) -> torch.Tensor:
    """The same values in memory of another layout; what lies between them is NaN, or zero for integers."""
    if not forms:
        return tensor
    lead = int(Form.OFFSET in forms)
    if Form.EXPANDED in forms:
        along = next(dim for dim, size in enumerate(tensor.shape) if size > 1)
        return tensor.narrow(along, 0, 1).contiguous().expand(tensor.shape)
    if Form.CHANNELS_LAST in forms:
        kind = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.contiguous(memory_format=kind)
    shape, order = list(tensor.shape), list(range(tensor.dim()))
    if Form.TRANSPOSED in forms:
        order[-2:] = order[-1], order[-2]
    step = 2 if Form.STRIDED in forms else 1
    stored = [shape[dim] for dim in order]
    stored[-1] *= step
    fill = math.nan if tensor.is_floating_point() else 0
    memory = torch.full((lead + math.prod(stored),), fill, dtype=tensor.dtype, device=tensor.device)
    view = memory[lead:].view(stored)[..., ::step].permute(order)
    view.copy_(tensor)
    return view


def fitting(form: Form, tensor: torch.Tensor) -> bool:
    """Whether a tensor can lie like that, and otherwise than it does."""
    match form:
        case Form.TRANSPOSED:
            return tensor.dim() >= 2 and min(tensor.shape[-2:]) > 1
        case Form.CHANNELS_LAST:
            return tensor.dim() in (4, 5) and tensor.shape[1] > 1
        case Form.EXPANDED:
            return any(size > 1 for size in tensor.shape) and tensor.is_floating_point()
        case Form.STRIDED:
            return tensor.dim() >= 1 and tensor.shape[-1] > 1
        case Form.OFFSET:
            return tensor.dim() >= 1 and tensor.numel() > 0


@dataclass(frozen=True)
class Given:
    """The task's own inputs, as far as changes must know them; no gigabytes are held."""

    forms: list[Any]
    """With tensors that have no data."""
    largest: tuple[int, ...]
    """Of every tensor of integers the largest: any of them may be an index."""

    @classmethod
    def of(cls, inputs: list[Any]) -> Given:
        whole = [t for _, t in leaves(inputs) if not t.is_floating_point() and not t.is_complex()]
        largest = tuple(int(t.max()) for t in whole if t.dtype is not torch.bool and t.numel())
        return cls(map_tensors(inputs, form_of), largest)


# -- sizes -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def axes_of(task: Task) -> tuple[Axis, ...]:
    """The free dimensions of a task, found on tensors without data; none where it does not run there."""
    with Program.load(task) as program:
        try:
            return axes(program, RUNS)
        except (TaskError, MachineError):
            return ()


@lru_cache(maxsize=64)
def together(task: Task, sizes: tuple[tuple[Axis, int], ...]) -> tuple[tuple[Axis, int], ...]:
    """As many of ``sizes`` as the program takes at once."""
    held: tuple[tuple[Axis, int], ...] = ()
    with Program.load(task) as program:
        rehearsal = Rehearsal(program)
        for size in sizes:
            trial = (*held, size)
            if rehearsal.runs({place: n for axis, value in trial for place, n in axis.at(value).items()}):
                held = trial
    return held


def batch_of(found: tuple[Axis, ...]) -> Axis | None:
    """The axis of the first dimension of the first tensor."""
    return next((a for a in found if any(p.path[:1] == (0,) and p.dim == 0 for p in a.places)), None)


def odd_size(axis: Axis, taken: set[int], given: Given) -> int:
    """Another value, odd where any will do: about half as large, or larger where indices forbid that."""
    if axis.step > 1:
        less = axis.size - axis.step
        return less if less > 0 and legal(axis, less, given) else axis.size + axis.step
    value = max(3, axis.size // 2) | 1
    while value in taken:
        value += 2
    return value if value > axis.size or legal(axis, value, given) else larger_size(axis, given)


def even_size(axis: Axis, taken: set[int], given: Given) -> int | None:
    """Another even value that is no multiple of 4: tiles and vectors of that width end inside it."""
    if axis.step > 1:
        return None
    value = max(6, axis.size // 2) // 4 * 4 + 2
    while value in taken:
        value += 4
    return value if value > axis.size or legal(axis, value, given) else None


def larger_size(axis: Axis, given: Given) -> int:
    """Twice as large and a little, where that is not too much memory; else a little."""
    if axis.step > 1:
        return axis.size + axis.step
    if sum(tensor.numel() for _, tensor in leaves(given.forms)) <= SMALL:
        return 2 * axis.size + 3
    return (axis.size + max(2, axis.size // 8)) | 1


def legal(axis: Axis, value: int, given: Given) -> bool:
    """Whether no integer of the inputs can be an index into the axis that would lie beyond its new end.

    One that lies beyond the present end already is no such index. A GPU does not forgive an index that is.
    """
    return value >= axis.size or not any(value <= most < axis.size for most in given.largest)


# -- arguments --------------------------------------------------------------------------------------------


def other_values(value: Any) -> list[Any]:
    """Other values of a simple argument, those most likely to be legal first; none of anything else.

    Numbers of things grow first: an index into a smaller table would lie beyond it.
    """
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        near = [value + 1, 2 * value, value - 1, value // 2]
        return [v for v in dict.fromkeys(near) if v != value and (v > 0 or value <= 0)]
    if isinstance(value, float) and math.isfinite(value):
        if abs(value) < 1e-2:
            return [0.125, 0.5]
        return [value * 0.5, value * 0.75]
    return []


@lru_cache(maxsize=32)
def other_arguments(task: Task) -> tuple[tuple[str, Any], ...]:
    """For each simple constructor argument another value with which the program builds and runs."""
    found: list[tuple[str, Any]] = []
    with Program.load(task) as program:
        try:
            given = program.bound_arguments()
        except (TaskError, TypeError):
            return ()
        for name, value in list(given.items())[:MOST_ARGUMENTS]:
            legal = (v for v in other_values(value) if _runs(program, {name: v}))
            if (other := next(legal, None)) is not None:
                found.append((name, other))
    return tuple(found)


@lru_cache(maxsize=32)
def far_arguments(task: Task) -> tuple[tuple[str, float], ...]:
    """Of each floating-point constructor argument values above one, of the other sign, and zero.

    Only those with which the program builds and runs. A formula that holds for small positive numbers alone
    fails there.
    """
    with Program.load(task) as program:
        try:
            given = program.bound_arguments()
        except (TaskError, TypeError):
            return ()
        floats = {n: v for n, v in given.items() if isinstance(v, float) and math.isfinite(v)}
        return tuple(
            (name, other)
            for name, value in list(floats.items())[:MOST_ARGUMENTS]
            for other in dict.fromkeys((2.0 * abs(value) + 1.5, -value, 0.0))
            if other != value and _runs(program, {name: other})
        )


@lru_cache(maxsize=64)
def jointly(task: Task, arguments: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """As many of ``arguments`` as the program takes at once."""
    held: tuple[tuple[str, Any], ...] = ()
    with Program.load(task) as program:
        for argument in arguments:
            if len(arguments) == 1 or _runs(program, dict((*held, argument))):
                held = (*held, argument)
    return held


def _runs(program: Program, arguments: Mapping[str, Any]) -> bool:
    try:
        return Rehearsal(Varied.of(program, arguments=arguments)).runs({})
    except (TaskError, MachineError):
        return False
