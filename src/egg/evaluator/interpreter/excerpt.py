"""Some programs of a launch instead of all: for sizes at which all of them would take too long.

A launch whose programs are affordable runs whole. Of any other the programs at the corners of the grid run,
those whose numbers lie near an integer that the kernel's source holds (a branch that only one program takes
compares with one), and others drawn by lot, as long as there is time. Which bytes they stored is noted:
nothing else of the result means anything.

A later launch may read such a result. A program of it that loads a byte which no program has stored ends
there, and what it stored is no result; others are tried first where earlier programs ran: at the same place
along an axis of the same size, or at the same share of the grid. So elements of the last launch are followed
back through those before it, where few programs make what one of them reads. Where every program reads what
many make (a product behind a long launch), the excerpt says why it is none (:attr:`Excerpt.without`).
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
from egg.evaluator.interpreter.places import number_of, place_of
from egg.evaluator.interpreter.races import RaceDetector

TRIED_FIRST = 3
"""Programs after which it is estimated how long all of them take."""
MOST_NEAR = 240
"""Programs near integers of the source, and as many near quotients of those and the arguments."""
FEWEST_BY_LOT = 12
MOST_BY_LOT = 120
MOST_NUMBERS = 400
MOST_GUIDED, MOST_MISSED = 240, 400
"""Places that follow from those of an earlier launch, and programs that may load what is not there."""
ALL_SOME = 45.0
"""Seconds for all launches of one forward that run in part."""
BRIEF_WHOLE, BRIEF_SOME = 2.0, 1.0
"""Seconds, for a call that looks for what remains of an earlier one, which shows in any program."""


class Incomplete(BaseException):
    """Ends a forward that goes on with a result of which only a part was computed."""


class Missing(BaseException):
    """Ends a program that loads what no program of an earlier launch has written."""


@dataclass
class Written:
    """The bytes of one storage that the programs that ran stored, in units of so many."""

    itemsize: int
    elements: np.ndarray
    owner: Any = None
    """Keeps the memory, so that its address stays the name of this storage."""

    def mark(self, offsets: np.ndarray, itemsize: int, value: bool = True) -> None:
        """Elements of ``itemsize`` bytes at these bytes of the storage."""
        for units in self._units(offsets, itemsize):
            self.elements[units] = value

    def has(self, offsets: np.ndarray, itemsize: int) -> np.ndarray:
        """For each element whether all of it was stored."""
        there = np.ones(offsets.shape, dtype=bool)
        for units in self._units(offsets, itemsize):
            there &= self.elements[units]
        return there

    def by(self, itemsize: int) -> np.ndarray:
        """For each element of that size whether all of it was stored."""
        self._refine(itemsize)
        count = itemsize // self.itemsize
        whole = self.elements[: len(self.elements) // count * count]
        return np.asarray(whole.reshape(-1, count).all(axis=1))

    def _units(self, offsets: np.ndarray, itemsize: int) -> Iterator[np.ndarray]:
        odd = offsets[offsets % itemsize != 0]
        self._refine(int(np.gcd.reduce(odd, initial=itemsize)))
        first = offsets // self.itemsize
        return (first + unit for unit in range(itemsize // self.itemsize))

    def _refine(self, itemsize: int) -> None:
        unit = math.gcd(itemsize, self.itemsize)
        if unit != self.itemsize:
            self.elements = np.repeat(self.elements, self.itemsize // unit)
            self.itemsize = unit


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
    trails: list[tuple[tuple[int, ...], list[int]]] = field(default_factory=list)
    """Grids of launches that ran in part, with the numbers of their programs that did."""
    missed: int = 0
    """Programs of the launch under way that loaded what is not there."""

    def programs(
        self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any], ran: list[int]
    ) -> Iterator[int]:
        """The numbers, from 1 on, of the programs to run; each is put down in ``ran``."""
        total = math.prod(grid)
        began, self.missed = self.clock(), 0
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
        until = began + min(self.some_seconds, self.left_seconds)
        lot = random.Random(random.getrandbits(64))
        near = [
            place
            for group in places_near(grid, numbers_of(kernel.fn), arguments)
            for place in _drawn(group, MOST_NEAR, lot)
        ]
        corners = list(itertools.product(*({0, size - 1} for size in grid)))
        drawn = [tuple(lot.randrange(size) for size in grid) for _ in range(MOST_BY_LOT)]
        others = [*corners, *drawn[:FEWEST_BY_LOT], *near, *drawn[FEWEST_BY_LOT:]]
        for place in [*(self._guided(grid, lot) if self.missed else ()), *others]:
            number = number_of(place, grid)
            if number in done:
                continue
            if self.clock() > until or self.missed > MOST_MISSED:
                break
            done.add(number)
            ran.append(number)
            yield number
        self.left_seconds = max(0.0, self.left_seconds - (self.clock() - began))

    def _guided(self, grid: tuple[int, ...], lot: random.Random) -> list[tuple[int, ...]]:
        """Places that may read what programs of earlier launches made: the last launch's first, by turns at
        the same place along an axis of the same size and at the same share of the grid."""
        found: list[tuple[int, ...]] = []
        total = math.prod(grid)
        for earlier, numbers in reversed(self.trails):
            share = total / math.prod(earlier)
            same = [
                (a, b)
                for a, one in enumerate(earlier)
                for b, other in enumerate(grid)
                if one == other and one > 1
            ]
            for number in lot.sample(numbers, min(len(numbers), MOST_GUIDED // max(1, len(self.trails)))):
                there = place_of(number, earlier)
                for a, b in same:
                    place = [lot.randrange(size) for size in grid]
                    place[b] = there[a]
                    found.append(tuple(place))
                first = int((number - 1) * share)
                last = max(first, math.ceil(number * share) - 1)
                found += [
                    place_of(min(total, 1 + lot.randint(first, last)), grid)
                    for _ in range(1 if share <= 1 else 2)
                ]
        return found

    def finish(self, name: str, grid: tuple[int, ...], ran: list[int], races: ExcerptRaces) -> None:
        """Behind a launch: what it stored is there in part, or whole."""
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
        self.trails.append((grid, list(ran)))
        self.partial |= {region.real: written for region, written in races.written.items()}

    def miss(self, ran: list[int], races: ExcerptRaces) -> None:
        """The program that ran last loaded what is not there: it is none of those that ran."""
        self.missed += 1
        ran.pop()
        races.forget()

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
        self._latest: list[tuple[Written, np.ndarray, int]] = []
        """By the program under way."""
        self.has_atomics = False

    def enter(self, program: int) -> None:
        super().enter(program)
        self._latest = []

    def load(self, part: Touched, itemsize: int, **named: Any) -> None:
        self._look(part, itemsize)
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
        self._latest.append((self.written[region], offsets, itemsize))

    def atomic(self, part: Touched, *how: Any, **named: Any) -> None:
        self._excerpt.check_read(part.region.real, f"kernel {self.kernel}")
        self.has_atomics = True
        super().atomic(part, *how, **named)

    def forget(self) -> None:
        """What the program under way stored is no result."""
        for written, offsets, itemsize in self._latest:
            written.mark(offsets, itemsize, value=False)

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
            raise Missing


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
