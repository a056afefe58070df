"""The same task at another size: small enough for an interpreter.

A task's sizes are integers written at module level (``batch_size = 128``, ``N = 2048 * 2``,
``shape = (3, 224, 224)``) or, failing that, literals inside ``get_inputs`` and
``get_init_inputs``. Each is a *knob*. Turning knobs is a search with a cheap oracle: the
program is run on meta tensors, which shows whether the new sizes still fit together and
what they cost, without touching any data. What a knob means is never guessed from its
name, except that the batch is the first thing to shrink because it changes the least.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.knobs import SIZE, find_knobs, of_the_constructor, rewritten
from egg.evaluator.task.meta import (
    PROBE_SECONDS,
    Meter,
    OutOfTime,
    WholeRecurrence,
    distinct_bytes,
    on_meta,
)
from egg.evaluator.task.program import Program, outputs_of
from egg.evaluator.task.stated import Outside

FLOORS = ((16, SIZE), (8, SIZE), (8, 16), (2, 8))
"""Passes of the search: (never below, only knobs that start at or above)."""
SEARCH_SECONDS = 60.0
FEWEST = 4
"""Below which a size is not halved to make room for another."""

Sizes = tuple[int, ...]


class CannotRescale(TaskError):
    """No combination of the task's own integers meets the budget."""


@dataclass(frozen=True)
class Cost:
    """What one forward takes: operations of products and convolutions, and elements made or read."""

    flops: float
    elements: int
    least_bytes: int = field(default=0, compare=False)
    """Inputs, parameters and outputs once each: what must cross the memory bus."""
    shapes: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Shapes of inputs, parameters and outputs, in order."""

    def excess(self, max_flops: float, max_elements: int) -> float:
        """How far beyond the budget, as the logarithm of the factors; 0 is within it."""
        return math.log(max(1.0, self.flops / max_flops)) + math.log(max(1.0, self.elements / max_elements))


@dataclass(frozen=True)
class Rescaled:
    """A task at other sizes; ``changes`` maps each knob to its old and new value."""

    task: Task
    changes: dict[str, tuple[int, int]]
    cost: Cost


def rescale(
    task: Task,
    *,
    max_flops: float,
    max_elements: int,
    keep_at_least: int = 2,
    batch_only: bool = False,
    outside: Outside | None = None,
) -> Rescaled:
    """Shrink ``task`` until one forward is within the budget.

    First the batch is halved, down to ``keep_at_least``. Then, again and again, the knob
    whose halving saves most is halved, among those with which the program still runs on
    meta tensors. Halving keeps divisibility (heads, groups, patches). When no single knob
    helps, knobs of equal value are turned together, and only then are sizes below
    ``SIZE`` touched. With ``batch_only`` nothing but the batch is. Sizes of which ``outside`` gives a reason
    are passed over, as those are at which the program does not run.
    """
    search = _Search(task, max_flops, max_elements, keep_at_least, outside)
    best = search.shrink_batch(search.measurable(search.original))
    for floor, start in () if batch_only else FLOORS:
        if search.excess(best) == 0.0:
            break
        best = search.shrink(best, max(floor, keep_at_least), start)
    if search.excess(best) > 0.0:
        raise CannotRescale(
            f"task {task.name!r} cannot be brought within {max_flops:.2g} FLOPs "
            f"and {max_elements:.2g} elements: {search.account(best)}",
            "give the task a smaller size, or name its sizes as integers at module level",
        )
    return search.result(best)


BEFORE = 3
"""Sizes that are tried before the one at which the module is as it is built, which may be a large one."""


def others(task: Task, chosen: Rescaled, *, max_flops: float, max_elements: int) -> list[Rescaled]:
    """Other sizes between ``chosen`` and the task's own, the cheapest first.

    Each integer that was changed is put back alone, the others halved for it, and those that the constructor
    takes together; then all of them are doubled, and so on: a program that is made for one of the task's
    sizes, for its module as it is built, or for multiples of something, runs at one of these.
    """
    search = _Search(task, max_flops, max_elements, 1)
    at = tuple(chosen.changes.get(k.name, (0, k.value))[1] for k in search.knobs)
    if at == search.original:
        return []
    changed = [i for i, (now, own) in enumerate(zip(at, search.original, strict=True)) if now != own]
    trials = [search.around(_put(at, {i: search.original[i]}), i, chosen.cost.elements) for i in changed]
    built = of_the_constructor(task.source)
    held = [i for i in changed if search.knobs[i].name in built]
    factors, whole, as_built = (2, 4, 8, 16), {i: search.original[i] for i in held}, list[Sizes]()
    if 1 < len(held) < len(changed):
        larger = (_put(_times(at, search.original, factor), whole) for factor in (1, *factors))
        as_built = [trial for trial in larger if search.excess(trial) == 0.0][:1]
    trials += [_times(at, search.original, factor) for factor in factors]
    trials.append(search.original)
    found = [t for t in dict.fromkeys(trials) if t != at and search.excess(t) == 0.0]
    results = sorted((search.result(t) for t in found), key=lambda r: r.cost.elements + r.cost.flops / 100)
    return [*results[:BEFORE], *(search.result(t) for t in as_built if t != at), *results[BEFORE:]]


def _times(sizes: Sizes, most: Sizes, factor: int) -> Sizes:
    return tuple(min(size * factor, own) for size, own in zip(sizes, most, strict=True))


def _put(sizes: Sizes, changes: dict[int, int]) -> Sizes:
    return tuple(changes.get(i, size) for i, size in enumerate(sizes))


def cost_of(task: Task, seconds: float = PROBE_SECONDS) -> Cost:
    """What one forward of ``task`` costs at its own size; :class:`TaskError` if it does not run on meta."""
    meta = torch.device("meta")
    with Program.load(task) as program, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = on_meta(program)
        inputs = program.inputs(0, meta, Precision.MATCH)
        meter = Meter(seconds)
        with meter, WholeRecurrence(meter):
            value = program.run(module, inputs)
        given = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor)]
        held = [*given, *module.parameters(), *module.buffers()]
        outputs = [t for _, t in outputs_of(value) if isinstance(t, torch.Tensor)]
    elements = meter.elements + sum(t.numel() for t in held)
    least_bytes = distinct_bytes(held) + distinct_bytes(outputs)
    return Cost(meter.flops, elements, least_bytes, tuple(tuple(t.shape) for t in (*held, *outputs)))


class _Search:
    """The knobs of one task, and what each setting of them costs (remembered)."""

    def __init__(
        self,
        task: Task,
        max_flops: float,
        max_elements: int,
        keep_at_least: int,
        outside: Outside | None = None,
    ) -> None:
        self.task = task
        self.knobs = find_knobs(task.source)
        self.original: Sizes = tuple(k.value for k in self.knobs)
        self._budget = (max_flops, max_elements)
        self._keep = keep_at_least
        self._outside = outside
        self._deadline = time.thread_time() + SEARCH_SECONDS
        self._costs: dict[Sizes, Cost | None] = {}
        self._failures: dict[Sizes, str] = {}
        self._slow: set[Sizes] = set()

    def cost(self, sizes: Sizes) -> Cost | None:
        """The cost at ``sizes``, or ``None`` where the program does not run there."""
        if sizes not in self._costs:
            self._costs[sizes] = self._probe(sizes)
        return self._costs[sizes]

    def excess(self, sizes: Sizes) -> float:
        cost = self.cost(sizes)
        return math.inf if cost is None else cost.excess(*self._budget)

    def measurable(self, sizes: Sizes) -> Sizes:
        """Halve the largest knob until a forward on meta tensors ends in time (long recurrences do not)."""
        while self.cost(sizes) is None:
            largest_first = sorted(range(len(sizes)), key=lambda i: -sizes[i])
            trials = [self._halved(sizes, (i,), 16) for i in largest_first]
            usable = (t for t in trials if t != sizes and (self.cost(t) or t in self._slow))
            trial = next(usable, None) if sizes in self._slow else None
            if trial is None:
                raise CannotRescale(
                    f"task {self.task.name!r} does not run on meta tensors: {self._failures[sizes]}",
                    "a task that looks at its data, or imports what is not installed, cannot be rescaled",
                )
            sizes = trial
        return sizes

    def shrink_batch(self, sizes: Sizes) -> Sizes:
        for index, knob in enumerate(self.knobs):
            while knob.batch and sizes[index] > self._keep and (now := self.excess(sizes)) > 0.0:
                value = max(self._keep, sizes[index] // 2)
                trial = (*sizes[:index], value, *sizes[index + 1 :])
                if self.excess(trial) >= now:
                    break
                sizes = trial
        return sizes

    def shrink(self, sizes: Sizes, floor: int, start: int) -> Sizes:
        """Halve the most rewarding knob, the largest of equals, until within budget or nothing helps.

        A group of knobs counts by its reward for each of them, or all would always be halved together: 512
        rows of 32 columns are four times the programs of 128 by 128, and no more elements. The reward of a
        move changes little from round to round, so the last known one orders the moves and only the front of
        the queue is measured again.
        """
        moves = [m for m in self._moves() if all(self.knobs[i].value >= start for i in m)]
        rewards = dict.fromkeys(moves, math.inf)
        while rewards and (now := self.excess(sizes)) > 0.0 and time.thread_time() < self._deadline:
            move = max(rewards, key=lambda m: (round(rewards[m], 1), max(sizes[i] for i in m), -len(m)))
            trial = self._halved(sizes, move, floor)
            reward = (now - self.excess(trial)) / len(move)
            if reward <= 0.0:
                del rewards[move]
                continue
            rewards[move] = reward
            if reward >= max(rewards.values()) - 0.1:
                sizes = trial
        return sizes

    def around(self, sizes: Sizes, kept: int, elements: int) -> Sizes:
        """Halve the largest of the other knobs that were changed before, until as few elements are left."""
        held = {kept} | {i for i, k in enumerate(self.knobs) if sizes[i] == k.value}
        while (cost := self.cost(sizes)) is not None and cost.elements > elements:
            others = [i for i in range(len(sizes)) if i not in held]
            if not others:
                break
            largest = max(others, key=lambda i: sizes[i])
            trial = self._halved(sizes, (largest,), max(self._keep, FEWEST))
            if trial == sizes or self.cost(trial) is None:
                held.add(largest)
            else:
                sizes = trial
        return sizes

    def result(self, sizes: Sizes) -> Rescaled:
        cost = self.cost(sizes)
        if cost is None:
            raise CannotRescale(self._failures[sizes])
        paired = zip(self.knobs, self.original, sizes, strict=True)
        changes = {k.name: (old, new) for k, old, new in paired if old != new}
        return Rescaled(self._task_at(sizes), changes, cost)

    def account(self, sizes: Sizes) -> str:
        """What was tried, for the user: the best sizes found and their cost."""
        if not self.knobs:
            return "it has no integers at module level or in get_inputs/get_init_inputs to change"
        at = ", ".join(f"{k.name}={v}" for k, v in zip(self.knobs, sizes, strict=True))
        cost = self.cost(sizes) or Cost(math.inf, 0)
        return (
            f"{len(self._costs)} sizes tried, best {at} with {cost.flops:.2g} FLOPs "
            f"and {cost.elements:.2g} elements"
        )

    def _moves(self) -> list[tuple[int, ...]]:
        """Single knobs, then groups of knobs that share a value, then all that are sizes."""
        singles = [(i,) for i in range(len(self.knobs))]
        by_value: dict[int, list[int]] = {}
        for index, knob in enumerate(self.knobs):
            by_value.setdefault(knob.value, []).append(index)
        groups = [tuple(g) for g in by_value.values() if len(g) > 1]
        sizes = tuple(i for i, k in enumerate(self.knobs) if k.value >= SIZE)
        groups += [sizes] if len(sizes) > 1 and sizes not in groups else []
        return singles + groups

    def _halved(self, sizes: Sizes, move: tuple[int, ...], floor: int) -> Sizes:
        halves = {i: (sizes[i] + 1) // 2 for i in move}
        if any(h < floor for h in halves.values()):
            return sizes
        return tuple(halves.get(i, s) for i, s in enumerate(sizes))

    def _task_at(self, sizes: Sizes) -> Task:
        changed = [(k, v) for k, v in zip(self.knobs, sizes, strict=True) if v != k.value]
        return Task(
            self.task.name, rewritten(self.task.source, changed), self.task.level, self.task.problem_id
        )

    def _probe(self, sizes: Sizes) -> Cost | None:
        task = self._task_at(sizes)
        try:
            if self._outside is not None and (reason := self._outside(task)):
                self._failures[sizes] = reason
                return None
            cost = cost_of(task)
            if sizes != self.original and (own := self.cost(self.original)) and _emptied(own, cost):
                self._failures[sizes] = "a tensor has no elements there"
                return None
            return cost
        except (TaskError, MachineError) as error:
            self._failures[sizes] = error.message
            if isinstance(error, OutOfTime):
                self._slow.add(sizes)
            return None


def _emptied(own: Cost, small: Cost) -> bool:
    """Whether a parameter, buffer, input or output that has elements at the task's own size has none here: a
    table without rows (``width // group``) can be looked up without data, and with data in no place."""
    pairs = zip(own.shapes, small.shapes, strict=False)
    return any(0 in after and 0 not in before for before, after in pairs)
