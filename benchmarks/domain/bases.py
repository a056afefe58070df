"""The call that all others of a task are made from: the task at a size that the device runs quickly.

A file is written for the task as its user has it, and that may be gigabytes. So the task's own integers are
turned down first, and under the interpreter the input tensors as well. A file may hold what was turned down
to be fixed, and refuse; then the constructor's arguments stay as they are, and only the batch shrinks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import torch

from benchmarks.domain.calls import Call, Kind
from benchmarks.domain.layouts import Place, Sizes, changed
from benchmarks.domain.trial import Sides
from egg.core.domain import Domain, same
from egg.core.errors import EggError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.judge.reduction import smallest
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, Cost, Rescaled, rescale

INTERPRETED = ((1e6, 4_000), (5e6, 12_000))
"""FLOPs and elements of a call under the interpreter, smallest first; then what the judge takes there."""
SHRUNK_ELEMENTS = 4_000
SHRUNK_SIZES = (5, 8, 9, 16, 17, 32, 33, 64)
ON_A_GPU = ((2e11, 50_000_000),)
"""Some 200 MB in fp32."""
BATCH_ALONE = ((1e7, 100_000), (1e8, 1_000_000), (1e9, 10_000_000), (1e10, 50_000_000), (1e12, 400_000_000))


@dataclass(frozen=True)
class Base:
    """A call to begin with, and the two sides it is put to."""

    sides: Sides
    call: Call
    size: str
    """What was changed of the task, for people."""


def bases(task: Task, quick: bool, device: torch.device, sides: Callable[[Program], Sides]) -> Iterator[Base]:
    """The smallest first; each next one is nearer to the task. ``quick``: whether to begin below it."""
    for found in _tasks(task, device) if quick else (Rescaled(task, {}, Cost(0.0, 0)),):
        with Program.load(found.task) as program:
            yield from _in(program, found, sides(program), quick)


def _tasks(task: Task, device: torch.device) -> Iterator[Rescaled]:
    seen: set[str] = set()
    for found in (*_smaller(task, device), *_smaller_batches(task)):
        if found.task.hash not in seen:
            seen.add(found.task.hash)
            yield found


def _smaller(task: Task, device: torch.device) -> Iterator[Rescaled]:
    for flops, elements in INTERPRETED if device.type == "cpu" else ON_A_GPU:
        with contextlib.suppress(CannotRescale):
            yield rescale(task, max_flops=flops, max_elements=elements)
            return
    if device.type == "cpu":
        with contextlib.suppress(EggError):
            yield smallest(task)


def _smaller_batches(task: Task) -> Iterator[Rescaled]:
    for flops, elements in BATCH_ALONE:
        with contextlib.suppress(CannotRescale):
            yield rescale(task, max_flops=flops, max_elements=elements, batch_only=True)
            return


def _in(program: Program, found: Rescaled, sides: Sides, quick: bool) -> Iterator[Base]:
    arguments = sides.signatures.arguments(*program.init_arguments())
    inputs = tuple(program.inputs(0, sides.device, Precision.MATCH))
    size = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in found.changes.items())
    for held in _with_fixed(arguments, sides.domain):
        call = Call(Kind.CAPTURED, "the captured call", held, inputs)
        if held is not arguments and sides.refuses(call):
            continue
        sides.settle(call)
        if quick and sides.device.type == "cpu":
            small = _shrunk(call, sides)
            if small is not call:
                shapes = [list(held.shape) for held in small.inputs if isinstance(held, torch.Tensor)]
                yield Base(sides, small, f"{size}; inputs {shapes}")
        yield Base(sides, call, size)


def _with_fixed(arguments: dict[str, Any], domain: Domain | None) -> Iterator[dict[str, Any]]:
    """The constructor's arguments at the task's size, and with what the file holds to be fixed."""
    yield arguments
    fixed = (
        {held.name: held.value for held in domain.arguments if not held.free} if domain is not None else {}
    )
    changes = {
        name: tuple(value) if isinstance(arguments[name], tuple) and isinstance(value, list) else value
        for name, value in fixed.items()
        if name in arguments and not same(arguments[name], value)
    }
    if changes:
        yield {**arguments, **changes}


def _shrunk(call: Call, sides: Sides) -> Call:
    """The largest dimensions made small, as far as the reference goes along."""
    inputs = call.inputs
    for _ in range(8):
        if _elements(inputs) <= SHRUNK_ELEMENTS:
            break
        sizes = Sizes(inputs, lambda given: not sides.refuses(call.as_kind(Kind.SIZES, "", inputs=given)))
        change = next(_reductions(sizes), None)
        if change is None:
            break
        inputs = changed(inputs, change)
    return call if inputs is call.inputs else call.as_kind(call.kind, call.name, inputs=inputs)


def _reductions(sizes: Sizes) -> Iterator[dict[Place, int]]:
    for place in sorted(sizes.places(), key=lambda place: -sizes.size(place)):
        for size in SHRUNK_SIZES:
            if 2 * size <= sizes.size(place) and (change := sizes.at(place, size)) is not None:
                yield dict(change)


def _elements(inputs: tuple[Any, ...]) -> float:
    return sum((held.numel() for held in inputs if isinstance(held, torch.Tensor)), 0) or inf
