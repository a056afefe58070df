"""The size at which a task is judged without a GPU.

An interpreter is thousands of times slower than a GPU, so the task is brought to the smallest size that still
looks like itself. A kernel file may state that it is for fewer sizes: then the smallest size inside its
domain is taken, by the same budgets, up to the task's own size. That is no cheaper way out for a file: at the
size that every other file is run at it must still raise an error or be right
(:func:`egg.evaluator.gates.fixed.excluded`), and where no size inside can be interpreted it is not accepted
(:func:`egg.evaluator.gates.fixed.refuse`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, Cost, Rescaled, cost_of, others, rescale
from egg.evaluator.task.stated import Outside
from egg.evaluator.trial.trial import Excluded

INTERPRETER_BUDGETS = ((3e7, 40_000), (1e8, 400_000), (3e8, 3_000_000), (1e9, 12_000_000))
"""FLOPs and elements the interpreter is given, smallest first: a task that cannot be so small gets more."""
OTHER_SIZES = (1e9, 3_000_000)
"""FLOPs and elements of the sizes that are tried where a file does not run at the smallest."""
MOST_OTHER_SIZES = 4


@dataclass(frozen=True)
class Reduction:
    """Where a candidate is interpreted."""

    size: Rescaled
    excluded: Excluded | None = None
    """The smaller size that the file's domain excludes, where it excludes it."""
    too_large: str = ""
    """Why no size inside the domain can be interpreted; then :attr:`size` is outside it."""


def reduced(task: Task, outside: Outside | None, copied: Outside | None = None) -> Reduction:
    """The smallest size of ``task`` inside the domain that ``outside`` stands for; ``copied``: a test against
    constants of the task that the file has as its own, which stay as they are where that is possible."""
    least = _with_data(task, smallest(task, copied), copied)
    why = outside(least.task) if outside is not None and least.changes else ""
    if not why:
        return Reduction(least)
    excluded, inside = Excluded(least, why), _either(outside, copied)
    try:
        return Reduction(_with_data(task, _smallest_inside(task, inside), inside), excluded)
    except CannotRescale as reason:
        return Reduction(least, excluded, reason.message)


def _with_data(task: Task, found: Rescaled, outside: Outside | None) -> Rescaled:
    """``found``, or another size where the task raises there: a table that was made smaller than the numbers
    that look it up is only noticed with data. Where it raises at all of them, it is left to say so."""
    if not found.changes or _answers(found.task):
        return found
    flops, elements = OTHER_SIZES
    sizes = others(task, found, max_flops=flops, max_elements=elements)
    inside = (size for size in sizes if outside is None or not outside(size.task))
    return next((size for size in inside if _answers(size.task)), found)


def _answers(task: Task) -> bool:
    cpu = torch.device("cpu")
    try:
        with Program.load(task) as program:
            program.run(program.build(0, cpu, Precision.MATCH), program.inputs(0, cpu, Precision.MATCH))
    except TaskError:
        return False
    return True


def _either(*tests: Outside | None) -> Outside:
    """The first reason that a test gives."""
    return lambda task: next((why for test in tests if test is not None and (why := test(task))), "")


def smallest(task: Task, copied: Outside | None = None) -> Rescaled:
    """The task at the smallest size it can be brought to that still looks like itself."""
    if copied is not None:
        with contextlib.suppress(CannotRescale):
            return _smallest_inside(task, copied)
    for flops, elements in INTERPRETER_BUDGETS[:-1]:
        with contextlib.suppress(CannotRescale):
            return rescale(task, max_flops=flops, max_elements=elements)
    flops, elements = INTERPRETER_BUDGETS[-1]
    try:
        return rescale(task, max_flops=flops, max_elements=elements)
    except CannotRescale as reason:
        return _as_it_is(task, elements, reason)


def _smallest_inside(task: Task, outside: Outside | None) -> Rescaled:
    """By the largest budget first: where that fails the others do too."""
    flops, elements = INTERPRETER_BUDGETS[-1]
    found = rescale(task, max_flops=flops, max_elements=elements, outside=outside)
    for flops, elements in INTERPRETER_BUDGETS[:-1]:
        with contextlib.suppress(CannotRescale):
            return rescale(task, max_flops=flops, max_elements=elements, outside=outside)
    return found


def other_sizes(task: Task, small: Rescaled) -> Iterator[Rescaled]:
    """Sizes between; found only when one is asked for."""
    if small.changes:
        flops, elements = OTHER_SIZES
        yield from others(task, small, max_flops=flops, max_elements=elements)[:MOST_OTHER_SIZES]


def _as_it_is(task: Task, max_elements: int, reason: CannotRescale) -> Rescaled:
    """A task that looks at its data cannot be rescaled, nor need it be where its inputs are small.

    What does not run at all says so when its inputs are made, or when it is first run.
    """
    with Program.load(task) as program:
        inputs = program.inputs(0, torch.device("meta"), Precision.MATCH)
    elements = sum(leaf.numel() for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
    if elements <= max_elements and not _measurable(task):
        return Rescaled(task, {}, Cost(0.0, elements))
    raise MachineError(reason.message, "judge it on a GPU, or give the task smaller sizes") from reason


def _measurable(task: Task) -> bool:
    try:
        cost_of(task)
    except TaskError:
        return False
    return True
