"""Some programs of a launch instead of all: for sizes at which all of them would take too long.

A launch whose programs are affordable runs whole. Of any other the programs at the corners of the grid run,
those whose numbers lie near an integer that the kernel's source holds (a branch that only one program takes
compares with one), and others drawn by lot, as long as there is time. Which elements they stored is noted:
nothing else of the result means anything. So nothing may read a result of which only a part is there: the
excerpt says then why it is none (:attr:`Excerpt.without`).
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

TRIED_FIRST = 3
"""Programs after which it is estimated how long all of them take."""
MOST_NEAR = 240
"""Programs near integers of the source, and as many near quotients of those and the arguments."""
FEWEST_BY_LOT = 12
MOST_BY_LOT = 120
MOST_NUMBERS = 400
BRIEF_WHOLE, BRIEF_SOME = 2.0, 1.0
"""Seconds, for a call that looks for what remains of an earlier one, which shows in any program."""


class Incomplete(BaseException):
    """Ends a forward that goes on with a result of which only a part was computed."""


@dataclass
class Written:
    """The elements of one storage that the programs that ran stored."""

    itemsize: int
    elements: np.ndarray
    owner: Any = None
    """Keeps the memory, so that its address stays the name of this storage."""


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

    def programs(
        self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any], ran: list[int]
    ) -> Iterator[int]:
        """The numbers, from 1 on, of the programs to run; each is put down in ``ran``."""
        total = math.prod(grid)
        began = self.clock()
        for number in range(1, total + 1):
            ran.append(number)
            yield number
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
        done = set(ran)
        until = self.clock() + self.some_seconds
        lot = random.Random(random.getrandbits(64))
        near = [
            place
            for group in places_near(grid, numbers_of(kernel.fn), arguments)
            for place in _drawn(group, MOST_NEAR, lot)
        ]
        corners = list(itertools.product(*({0, size - 1} for size in grid)))
        drawn = [tuple(lot.randrange(size) for size in grid) for _ in range(MOST_BY_LOT)]
        wanted = [*corners, *drawn[:FEWEST_BY_LOT], *near, *drawn[FEWEST_BY_LOT:]]
        for place in wanted:
            number = number_of(place, grid)
            if number in done:
                continue
            if self.clock() > until:
                return
            done.add(number)
            ran.append(number)
            yield number

    def finish(self, name: str, total: int, ran: list[int], races: ExcerptRaces) -> None:
        """Behind a launch: what it stored is there in part, or whole."""
        self.launches.append((name, total, len(ran)))
        if len(ran) >= total:
            return
        if races.has_atomics:
            self.give_up(f"kernel {name} adds up over programs by atomics, and only some of them ran")
        for region, written in races.written.items():
            if written is None:
                self.give_up(f"kernel {name} stores elements of several widths to {region.name!r}")
            else:
                self.partial[region.real] = written

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
    """A race detector that notes which elements are stored, and refuses loads of what is partly there."""

    def __init__(self, excerpt: Excerpt, owners: Mapping[int, Any], *given: Any) -> None:
        super().__init__(*given)
        self._excerpt, self._owners = excerpt, owners
        self.written: dict[Region, Written | None] = {}
        self.has_atomics = False

    def load(self, part: Touched, itemsize: int, **named: Any) -> None:
        self._excerpt.check_read(part.region.real, f"kernel {self.kernel}")
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
        region = part.region
        if region not in self.written:
            count = -(-region.nbytes // itemsize)
            self.written[region] = Written(itemsize, np.zeros(count, dtype=bool), self._owners[region.real])
        written = self.written[region]
        if written is None or written.itemsize != itemsize or (part.low - region.start) % itemsize:
            self.written[region] = None
            return
        offsets = part.addresses.ravel() - np.uint64(region.start)
        written.elements[(offsets // np.uint64(itemsize)).astype(np.int64)] = True

    def atomic(self, part: Touched, *how: Any, **named: Any) -> None:
        self._excerpt.check_read(part.region.real, f"kernel {self.kernel}")
        self.has_atomics = True
        super().atomic(part, *how, **named)


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
