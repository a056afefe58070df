"""Some programs of a launch instead of all: for sizes at which all of them would take too long.

A launch whose programs are affordable runs whole. Of any other the programs at the corners of the grid run,
those whose numbers lie near an integer that the kernel's source holds (a branch that only one program takes
compares with one), and others drawn by lot, as long as there is time. Which bytes they stored is noted:
nothing else of the result means anything.

A later launch may read such a result. A program of it that loads a byte which no program has stored ends
there, and what it stored is no result; programs of the earlier launch that make what it loads are run
(:mod:`egg.evaluator.interpreter.trails`), and it begins again. So elements of the last launch are followed
back through those before it. Where no program of it can be run so (each reads what too many make), the
excerpt says why it is none (:attr:`Excerpt.without`).
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import random
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from egg.evaluator.interpreter.memory import AddressSpace, Region, Touched
from egg.evaluator.interpreter.places import number_of
from egg.evaluator.interpreter.races import RaceDetector
from egg.evaluator.interpreter.trails import Missing, Stores, Trail, Written, guided

TRIED_FIRST = 3
"""Programs after which it is estimated how long all of them take."""
MOST_NEAR = 240
"""Programs near integers of the source, and as many near quotients of those and the arguments."""
FEWEST_BY_LOT = 12
MOST_BY_LOT = 120
MOST_NUMBERS = 400
MOST_MISSED, MOST_MADE, DEPTH = 400, 1024, 4
"""Programs of a launch that may load what cannot be made, programs that make what one loads, and launches
through which it is followed back."""
ALL_SOME = 45.0
"""Seconds for all launches of one forward that run in part."""
BRIEF_WHOLE, BRIEF_SOME = 2.0, 1.0
"""Seconds, for a call that looks for what remains of an earlier one, which shows in any program."""


class Incomplete(BaseException):
    """Ends a forward that goes on with a result of which only a part was computed."""


@dataclass
class Excerpt:
    """How the launches of one forward run, and which elements they have written."""

    whole_seconds: float = 15.0
    """For all launches that run whole, together."""
    some_seconds: float = 6.0
    """For the programs of one launch that does not."""
    clock: Callable[[], float] = time.perf_counter
    partial: dict[int, Written] = field(default_factory=dict)
    """By the address of a storage that was written in part."""
    launches: list[tuple[str, int, int]] = field(default_factory=list)
    """Kernel, programs of its grid, programs that ran."""
    without: str = ""
    """Why nothing can be concluded."""
    left_seconds: float = ALL_SOME
    """For launches that run in part, together."""
    trails: list[Trail] = field(default_factory=list)
    """Launches that ran in part."""
    turn: int = 0
    """Launches so far, and changes by PyTorch."""
    changed: dict[int, int] = field(default_factory=dict)
    """By the address of a memory: the turn in which it was stored to last."""
    missed: int = 0
    """Programs of the launch under way that loaded what is not there."""

    def programs(
        self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any], ran: list[int]
    ) -> Iterator[int]:
        """The numbers, from 1 on, of the programs to run; each is put down in ``ran``."""
        total = math.prod(grid)
        began, self.missed, self.turn = self.clock(), 0, self.turn + 1
        self._until = began + self.whole_seconds + self.some_seconds
        for number in range(1, total + 1):
            ran.append(number)
            yield number
            if self.missed:
                break
            spent = self.clock() - began
            expected = spent / number * total
            if number >= TRIED_FIRST and max(spent, expected if spent < 1.0 else 0.0) > self.whole_seconds:
                break
        else:
            self.whole_seconds -= self.clock() - began
            return
        self.whole_seconds = max(0.0, self.whole_seconds - (self.clock() - began))
        yield from self._some(kernel, grid, arguments, ran)

    def _some(
        self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any], ran: list[int]
    ) -> Iterator[int]:
        done, began = set(ran), self.clock()
        self._until = until = began + min(self.some_seconds, self.left_seconds)
        lot = random.Random(random.getrandbits(64))
        near = [
            place
            for group in places_near(grid, numbers_of(kernel.fn), arguments)
            for place in _drawn(group, MOST_NEAR, lot)
        ]
        corners = list(itertools.product(*({0, size - 1} for size in grid)))
        drawn = [tuple(lot.randrange(size) for size in grid) for _ in range(MOST_BY_LOT)]
        others = [*corners, *drawn[:FEWEST_BY_LOT], *near, *drawn[FEWEST_BY_LOT:]]
        for place in [*(guided(self.trails, grid, lot) if self.missed else ()), *others]:
            number = number_of(place, grid)
            if number in done:
                continue
            if self.clock() > until or self.missed > MOST_MISSED:
                break
            done.add(number)
            ran.append(number)
            yield number
        self.left_seconds = max(0.0, self.left_seconds - (self.clock() - began))

    def finish(
        self,
        name: str,
        grid: tuple[int, ...],
        ran: list[int],
        races: ExcerptRaces,
        run: Callable[[int], None],
    ) -> None:
        """Behind a launch: what it stored is there in part, or whole. ``run`` runs more of its programs."""
        total = math.prod(grid)
        self.launches.append((name, total, len(ran)))
        if len(ran) >= total:
            for region, written in races.written.items():
                if region.real in self.partial:
                    offsets = np.flatnonzero(written.elements) * written.itemsize
                    self.partial[region.real].mark(offsets, written.itemsize)
            return
        if not ran:
            self.give_up(f"kernel {name} reads what only some programs of an earlier launch have written")
        if races.has_atomics:
            self.give_up(f"kernel {name} adds up over programs by atomics, and only some of them ran")
        turn = self.turn

        def unchanged() -> bool:
            return all(self.changed.get(address, 0) < turn for address in races.loaded)

        self.trails.append(Trail(grid, list(ran), races.stores, run, races, unchanged))
        self.partial |= {region.real: written for region, written in races.written.items()}

    def attempt(
        self, number: int, run: Callable[[int], None], races: ExcerptRaces, depth: int = DEPTH
    ) -> bool:
        """Run a program, and programs that make what it loads; ``False`` where that cannot be made."""
        made = 0
        while True:
            try:
                run(number)
            except Missing as missing:
                again = races.forget() and missing.made
                made += self._make(missing, depth) if again and self.clock() <= self._until else MOST_MADE + 1
                if made > MOST_MADE:
                    return False
            else:
                return True

    def _make(self, missing: Missing, depth: int) -> int:
        """Run programs that store what is missing; how many did, too many where none can."""
        wanted = self.partial[missing.address]
        trail = next((t for t in reversed(self.trails) if missing.address in t.stores), None)
        ends = np.concatenate([missing.offsets, missing.offsets + missing.itemsize - 1])
        numbers = trail.makers(missing.address, ends) if trail is not None and depth else []
        if trail is None or not numbers or len(numbers) > MOST_MADE or not trail.unchanged():
            return MOST_MADE + 1
        for number in numbers:
            if self.clock() > self._until or not self.attempt(number, trail.run, trail.races, depth - 1):
                return MOST_MADE + 1
            trail.ran.append(number)
        return len(numbers) if wanted.has(missing.offsets, missing.itemsize).all() else MOST_MADE + 1

    def miss(self, ran: list[int]) -> None:
        """The program that came last loads what is not there: it is none of those that ran."""
        self.missed += 1
        ran.pop()

    def give_up(self, why: str) -> None:
        self.without = self.without or why
        raise Incomplete(why)

    def check_read(self, address: int, who: str) -> None:
        if address in self.partial:
            self.give_up(f"{who} reads what only some programs of an earlier launch have written")

    @property
    def whole(self) -> bool:
        return all(total == ran for _, total, ran in self.launches)


class ExcerptRaces(RaceDetector):
    """A race detector that notes which bytes are stored, and ends programs that load what is not there."""

    def __init__(self, excerpt: Excerpt, owners: Mapping[int, Any], *given: Any) -> None:
        super().__init__(*given)
        self._excerpt, self._owners = excerpt, owners
        self.written: dict[Region, Written] = {}
        self.stores: dict[int, Stores] = {}
        self.loaded: set[int] = set()
        """Addresses of memories."""
        self._latest: list[tuple[Region, np.ndarray, int]] = []
        """Stores of the program under way."""
        self.has_atomics = False
        self.turn = 0
        """Of this launch among all changes."""

    def enter(self, program: int) -> None:
        super().enter(program)
        self.turn = self.turn or self._excerpt.turn
        self._meet()  # it may be entered again, behind an attempt that came to nothing
        self._latest = []

    def load(self, part: Touched, itemsize: int, **named: Any) -> None:
        self._look(part, itemsize)
        self.loaded.add(part.region.real)
        super().load(part, itemsize, **named)

    def store(
        self,
        part: Touched,
        itemsize: int,
        current: Callable[[], np.ndarray],
        values: np.ndarray,
        **named: Any,
    ) -> None:
        super().store(part, itemsize, current, values, **named)
        region, offsets = part.region, _offsets(part)
        if region not in self.written:
            count = -(-region.nbytes // itemsize)
            self.written[region] = Written(itemsize, np.zeros(count, dtype=bool), self._owners[region.real])
        self.written[region].mark(offsets, itemsize)
        self.stores.setdefault(region.real, Stores()).note(self.program, offsets, itemsize)
        self._excerpt.changed[region.real] = max(self.turn, self._excerpt.changed.get(region.real, 0))
        self._latest.append((region, offsets, itemsize))

    def atomic(self, part: Touched, *how: Any, **named: Any) -> None:
        self._excerpt.check_read(part.region.real, f"kernel {self.kernel}")
        self.has_atomics = True
        super().atomic(part, *how, **named)

    def forget(self) -> bool:
        """What the program under way stored is no result; whether it may begin again: not behind a store to
        what the launch loads."""
        for region, offsets, itemsize in self._latest:
            self.written[region].mark(offsets, itemsize, value=False)
        return not any(region.real in self.loaded for region, _, _ in self._latest)

    def _look(self, part: Touched, itemsize: int) -> None:
        """Whether all that is loaded is there: stored by this launch, or by programs of an earlier one."""
        before = self._excerpt.partial.get(part.region.real)
        if before is None:
            return
        offsets, own = _offsets(part), self.written.get(part.region)
        there = before.has(offsets, itemsize)
        if own is not None:
            there |= own.has(offsets, itemsize)
        if not there.all():
            raise Missing(part.region.real, offsets[~there], itemsize, made=own is None)


def _offsets(part: Touched) -> np.ndarray:
    """The bytes of the storage at which the elements of an access begin."""
    return (part.addresses.ravel() - np.uint64(part.region.start)).astype(np.int64)


def owners_of(space: AddressSpace, values: Mapping[str, Any]) -> dict[int, Any]:
    """The host's tensors by the address of their storage."""
    found: dict[int, Any] = {region.real: None for region in space.regions}
    waiting = list(values.values())
    while waiting:
        value: Any = waiting.pop()
        value = getattr(value, "base", None) if hasattr(value, "block_shape") else value
        if isinstance(value, tuple | list):
            waiting += value
        elif hasattr(value, "untyped_storage"):
            found[value.untyped_storage().data_ptr()] = value
    return found


def places_near(
    grid: tuple[int, ...], numbers: set[int], arguments: Mapping[str, Any]
) -> tuple[list[list[int]], list[list[int]]]:
    """At, before and behind each number, along every axis; and the same in units of a size or a block.

    The latter is where the program is that computes the element of that number.
    """
    units = {1} | {v for v in arguments.values() if isinstance(v, int) and not isinstance(v, bool) and v > 1}
    sizes = {v for v in units if v > 1}
    near = {n // unit + off for n in {*numbers, *sizes} for unit in units for off in (-1, 0, 1)}
    alone = {n + off for n in numbers for off in (-1, 0, 1)}

    def along(values: set[int]) -> list[list[int]]:
        return [sorted({v for v in values if 0 <= v < size} | {0, size - 1}) for size in grid]

    return along(alone), along(near)


def _drawn(axes: list[list[int]], most: int, lot: random.Random) -> list[tuple[int, ...]]:
    """All combinations of places along the axes in any order, or as many of them as are wanted."""
    if math.prod(map(len, axes)) <= most:
        every = list(itertools.product(*axes))
        lot.shuffle(every)
        return every
    return [tuple(map(lot.choice, axes)) for _ in range(most)]


def numbers_of(function: Any) -> set[int]:
    """The integers that a kernel's source holds, as written and as expressions of such; and what it calls."""
    found: set[int] = set()
    waiting, seen = [function], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            found |= _value(node)
            held: Any = one.__globals__.get(node.id) if isinstance(node, ast.Name) else None
            held = getattr(held, "value", held)
            if isinstance(held, int) and not isinstance(held, bool):
                found.add(held)
            elif inspect.isfunction(inner := getattr(held, "fn", None)):
                waiting.append(inner)
    return set(sorted(found)[:MOST_NUMBERS])


def _value(node: ast.AST) -> set[int]:
    """Of a literal, or of an expression of literals."""
    if not isinstance(node, ast.Constant | ast.BinOp):
        return set()
    parts = list(ast.walk(node))
    operators = ast.Add | ast.Sub | ast.Mult | ast.LShift | ast.FloorDiv
    if len(parts) > 12 or not all(isinstance(p, ast.Constant | ast.BinOp | operators) for p in parts):
        return set()
    constants = [p.value for p in parts if isinstance(p, ast.Constant)]
    if not all(isinstance(c, int) and abs(c) < 1 << 40 for c in constants):
        return set()
    shifts = [p for p in parts if isinstance(p, ast.BinOp) and isinstance(p.op, ast.LShift)]
    if any(not isinstance(p.right, ast.Constant) or not 0 <= int(p.right.value) < 64 for p in shifts):  # type: ignore[arg-type]
        return set()
    value = _folded(node)
    return set() if value is None else {value}


def _folded(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    assert isinstance(node, ast.BinOp)
    left, right = _folded(node.left), _folded(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.FloorDiv):
        return left // right if right else None
    by = {
        ast.Add: int.__add__,
        ast.Sub: int.__sub__,
        ast.Mult: int.__mul__,
        ast.LShift: int.__lshift__,
    }
    return by[type(node.op)](left, right)
