"""Calls beside the captured one: other sizes, layouts, arguments, modes and dtypes.

A :class:`Change` says what differs from the task's own call. It is a value: it can be split into the parts
that differ, and a part can be made smaller, which is how the smallest example of a wrong answer is found.
The changes are made on tensors and not on the task's source, so that they exist for every task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.forms import LEVELLING, Form, formed
from egg.evaluator.task.dimensions import Axis, Path, Place, Rehearsal, Varied, axes, leaves, resized
from egg.evaluator.task.program import Program, form_of, map_tensors
from egg.evaluator.task.unusual import unusual
from egg.evaluator.tensors.reals import as_reals

RUNS = 60
"""Forwards without data for the search of a task's free dimensions."""
SMALL = 1 << 22
"""Elements of all inputs up to which a size may be doubled."""


@dataclass(frozen=True)
class Alias:
    """Two inputs of one shape and dtype in the same memory."""

    holder: Path
    other: Path
    transposed: bool = False
    """Whether the other reads it in the opposite order of dimensions, as ``m(x, x.t())`` gives it."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The other input, in the holder's memory."""
        if not self.transposed:
            return tensor
        return tensor.view(tensor.shape[::-1]).permute(*reversed(range(tensor.dim())))


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
    wide: bool = False
    """Whether everything floating, the module too, is float64."""
    dtypes: tuple[tuple[Path, str], ...] = ()
    """Of single inputs, as PyTorch spells them."""
    alias: Alias | None = None
    unusual: str = ""
    """The kind of values, where no distribution draws them."""

    @property
    def builds(self) -> bool:
        """Whether it needs another module, built otherwise."""
        return bool(self.arguments) or self.precision is not None or self.wide

    @property
    def degenerate(self) -> bool:
        """Whether values along a dimension are all the same one: what a norm divides by is then rounding."""
        equal = any(form in LEVELLING for _, forms in self.forms for form in forms)
        return equal or any(value == 1 for _, value in self.sizes)

    @property
    def strange(self) -> bool:
        """Whether its values are none that the task draws for their place: they may have no answer."""
        return bool(self.unusual) or self.alias is not None

    def parts(self) -> Iterator[Change]:
        """Each thing that differs, alone; nothing for a change of one thing."""
        found = [
            *(Change(sizes=(size,)) for size in self.sizes),
            *(Change(forms=((path, (form,)),)) for path, forms in self.forms for form in forms),
            *(Change(arguments=(argument,)) for argument in self.arguments),
            *(Change(values=(value,)) for value in self.values),
            *([Change(training=self.training)] if self.training is not None else []),
            *([Change(precision=self.precision)] if self.precision is not None else []),
            *([Change(wide=True)] if self.wide else []),
            *(Change(dtypes=(dtype,)) for dtype in self.dtypes),
            *([Change(alias=self.alias)] if self.alias is not None else []),
            *([Change(unusual=self.unusual)] if self.unusual else []),
        ]
        yield from found if len(found) > 1 else ()

    def smaller(self) -> Iterator[Change]:
        """The same with smaller sizes, the smallest first."""
        for at, (axis, value) in enumerate(self.sizes):
            for less in (axis.size % axis.step or axis.step, 2 * axis.step, 3 * axis.step):
                if less < value and less != axis.size and (less - axis.size) % axis.step == 0:
                    yield replace(self, sizes=(*self.sizes[:at], (axis, less), *self.sizes[at + 1 :]))

    def program(self, program: Program) -> Varied:
        """Built otherwise; the sizes that an argument brings with it are those of its own inputs, too."""
        places = {place: n for axis, value in self.sizes for place, n in axis.at(value).items()}
        return Varied.of(program, arguments=dict(self.arguments), sizes=places if self.arguments else {})

    def _cast(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        wanted = dict(self.dtypes).get(path, "float64" if self.wide and tensor.is_floating_point() else "")
        return tensor.to(getattr(torch, wanted)) if wanted else tensor

    def inputs(self, given: list[Any], seed: int) -> list[Any]:
        """The task's inputs with this change; what was resized is not merely repeated."""
        sizes: dict[Place, int] = {}
        for axis, value in self.sizes:
            sizes |= axis.at(value)
        real = all(tensor.device.type != "meta" for _, tensor in leaves(given))
        given = unusual(given, self.unusual, seed) if self.unusual and real else given
        made = resized(given, sizes)
        generator = torch.Generator().manual_seed(seed)
        before = dict(leaves(given))
        laid = dict(self.forms)
        changed = {
            path: formed(self._cast(path, _varied(tensor, before[path], generator)), laid.get(path, ()))
            for path, tensor in leaves(made)
        }
        if self.alias is not None:
            held = changed[self.alias.holder] = changed[self.alias.holder].contiguous()
            changed[self.alias.other] = self.alias.of(held)
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
    if len(torch.unique(as_reals(before.flatten()[:4096]))) <= 2:
        return tensor
    wide = as_reals(tensor)
    factors = torch.rand(tensor.shape, generator=generator).to(wide.device, wide.dtype)
    return (wide * (1.0 - 0.25 * factors)).to(tensor.dtype)


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


def residue_size(axis: Axis, residue: int, taken: set[int], given: Given) -> int | None:
    """About half as large: a multiple of ``residue`` and of no larger power of two.

    A kernel may have a way of its own for multiples of 4, 8 or 16, which no odd size takes.
    """
    if axis.step > 1:
        return None
    value = axis.size // 64 * 32 + residue
    while value in taken or not legal(axis, value, given):
        value += 32
    return value


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
