"""Where a launch's programs read and write, at the launch's own size: inside the tensors they are given?

The programs at the corners of the grid, and a few between, are followed through Triton's IR with the
launch's arguments (:mod:`egg.evaluator.work.program`). Nothing runs and nothing is allocated, so that
sizes can be looked at that no interpreter could hold. Addresses that follow from data are not known
here, only how far they can reach (:mod:`egg.evaluator.work.narrow`); everything else must lie in its
tensor's storage. Where a tensor has more elements than 32
bits can count, the same is evaluated in 64 bits: an address that is another one then has wrapped around.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from egg.evaluator.work.access import BY_POINTER, MASKED
from egg.evaluator.work.arguments import Argument, TensorArgument
from egg.evaluator.work.count import NOT_FOLLOWED, bound, entry_of
from egg.evaluator.work.narrow import MOST_32, Narrow, narrow
from egg.evaluator.work.program import Env, Program
from egg.evaluator.work.tally import Steps
from egg.evaluator.work.ttir import Function, Module, Op
from egg.evaluator.work.values import Known, Number, Pointer, at_shape

BETWEEN = (0.31, 0.62)
"""Programs that are looked at besides the corners: how far along every axis."""
STEPS = 6_000
"""Operations that may be evaluated for one program."""
MOST_FOLLOWED, MOST_STEPS = 2_048, 150_000
"""Programs that are followed to find the one that stores to a byte, and operations of all of them."""


@dataclass(frozen=True)
class Reached:
    """By one access of one program: the first byte and the last of a tensor's storage, from its start."""

    line: int
    argument: str
    store: bool
    low: int
    high: int
    itemsize: int


@dataclass(frozen=True)
class Outside:
    """An access that leaves its tensor."""

    place: tuple[int, ...]
    reached: Reached
    tensor: TensorArgument
    wrapped: bool

    def words(self, kernel: str) -> str:
        verb = "stores to" if self.reached.store else "loads from"
        size = self.reached.itemsize
        first, last = self.reached.low // size, self.reached.high // size
        end = self.tensor.storage // size - 1
        why = "an offset wraps around in 32 bits" if self.wrapped else "out of bounds"
        return (
            f"kernel {kernel}, program {self.place}: {verb} argument {self.reached.argument!r} at elements "
            f"{first} to {last} where it has 0 to {end}: {why}"
        )


class Noted:
    """The accesses of one program, in order; part of :class:`~egg.evaluator.work.tally.Watch`."""

    def __init__(self, tensors: Mapping[str, TensorArgument]) -> None:
        self.tensors = tensors
        self.seen: list[Reached] = []
        self.blind = False
        """Whether something is stored of which it is not known where."""

    def mark(self) -> int:
        return len(self.seen)

    def take_back(self, mark: int) -> None:
        del self.seen[mark:]

    def access(self, op: Op, env: Mapping[str, Known], *, sure: bool) -> None:
        if op.name in BY_POINTER and op.operands and op.inputs:
            known = sure and self._noted(op, env)
            self.blind = self.blind or not (known or op.name == "tt.load")
        elif "descriptor_" in op.name:
            self.blind = self.blind or not op.name.endswith(("load", "gather"))

    def _noted(self, op: Op, env: Mapping[str, Known]) -> bool:
        """Note what an access through pointers reaches; ``False`` where that is not known."""
        pointer, pointed = env.get(op.operands[0]), op.inputs[0]
        if not isinstance(pointer, Pointer) or pointer.guessed:
            return False
        tensor = self.tensors.get(pointer.argument)
        at = MASKED.get(op.name, len(op.operands))
        mask = env.get(op.operands[at]) if at < len(op.operands) else None
        if tensor is None or not tensor.storage:
            return False
        if at < len(op.operands) and (not isinstance(mask, Number) or mask.guessed):
            return False
        offsets = at_shape(pointer.offset, pointed.shape)
        if isinstance(mask, Number):
            offsets = offsets[at_shape(mask.value, pointed.shape).bool()]
        if offsets.numel():
            low, high = int(offsets.min()) + tensor.before, int(offsets.max()) + tensor.before
            last = high + pointed.itemsize - 1
            store = op.name != "tt.load"
            self.seen.append(Reached(op.line, pointer.argument, store, low, last, pointed.itemsize))
        return True


@dataclass(frozen=True)
class Reach:
    """What the programs that were looked at do: the first fault, and how far stores go in each storage."""

    outside: Outside | Narrow | None
    stored: Mapping[int, tuple[int, int]]
    """By the address of a storage: the first and the last byte that is stored to."""
    blind: bool = False
    """Whether something is stored of which it is not known where."""
    divided: bool = False
    """Whether programs store to different storages: then a few of them do not show what all of them store."""


@dataclass(frozen=True)
class _Launch:
    """A launch whose programs can be followed, with the values and the tensors that they start with."""

    module: Module
    entry: Function
    grid: tuple[int, ...]
    env: Env
    tensors: Mapping[str, TensorArgument]

    @classmethod
    def of(cls, ttir: str, arguments: Mapping[str, Argument], grid: tuple[int, ...]) -> _Launch | None:
        entered = entry_of(ttir, grid)
        if entered is None:
            return None
        module, entry, full = entered
        env, tensors, _ = bound(entry, arguments)
        return cls(module, entry, full, env, tensors)

    def follow(self, place: tuple[int, ...], steps: Steps, *, wide: bool = False) -> tuple[Program, Noted]:
        """One program, and what it reads and writes; ``wide``: addresses evaluated in 64 bits."""
        program = Program(self.module, self.env, self.tensors, self.grid, place, steps)
        program.wide, program.watch = wide, (noted := Noted(self.tensors))
        program.run(self.entry)
        return program, noted


def reach(ttir: str, arguments: Mapping[str, Argument], grid: tuple[int, ...]) -> Reach | None:
    """How far a launch reaches; ``None`` where its IR cannot be followed."""
    try:
        launch = _Launch.of(ttir, arguments, grid)
        if launch is None:
            return None
        tensors = launch.tensors
        huge = any(t.storage > MOST_32 * t.itemsize for t in tensors.values())
        stored: dict[int, tuple[int, int]] = {}
        outside: Outside | Narrow | None = narrow(launch.entry, launch.env, tensors)
        blind, targets = False, set[frozenset[int]]()
        for place in _places(launch.grid):
            _, noted = launch.follow(place, Steps(STEPS))
            blind = blind or noted.blind
            for reached in noted.seen:
                _widen(stored, reached, tensors)
            targets.add(frozenset(tensors[r.argument].address for r in noted.seen if r.store))
            wide = launch.follow(place, Steps(STEPS), wide=True)[1] if huge else noted
            outside = outside or _outside(place, noted.seen, wide.seen, tensors)
        return Reach(outside, stored, blind, len(targets - {frozenset()}) > 1)
    except NOT_FOLLOWED:
        return None


def touches(
    ttir: str,
    arguments: Mapping[str, Argument],
    grid: tuple[int, ...],
    address: int,
    byte: int,
    *,
    most: int = MOST_FOLLOWED,
    steps: int = MOST_STEPS,
) -> bool | None:
    """Whether some program of a launch stores across a byte of a storage; ``None`` where that is not known.

    The programs are followed one by one, so many of them at ``most``. Where a loop of one was not followed to
    its end, or there are too many of them, an access that was not seen may be the one.
    """
    try:
        launch = _Launch.of(ttir, arguments, grid)
        if launch is None:
            return None
        left, sure = steps, prod(launch.grid) <= most
        for place in itertools.islice(itertools.product(*map(range, launch.grid)), most):
            own = Steps(STEPS)
            program, noted = launch.follow(place, own)
            sure = sure and program.complete and not noted.blind and not own.short
            stores = (r for r in noted.seen if r.store and launch.tensors[r.argument].address == address)
            if any(r.low <= byte <= r.high for r in stores):
                return True
            left -= STEPS - own.left
            if left <= 0:
                return None
        return False if sure else None
    except NOT_FOLLOWED:
        return None


def _places(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    corners = itertools.product(*({0, size - 1} for size in grid))
    between = (tuple(int((size - 1) * share) for size in grid) for share in BETWEEN)
    yield from dict.fromkeys((*corners, *between))


def _widen(
    stored: dict[int, tuple[int, int]], reached: Reached, tensors: Mapping[str, TensorArgument]
) -> None:
    if reached.store:
        address = tensors[reached.argument].address
        low, high = stored.get(address, (reached.low, reached.high))
        stored[address] = (min(low, reached.low), max(high, reached.high))


def _outside(
    place: tuple[int, ...], seen: list[Reached], wide: list[Reached], tensors: Mapping[str, TensorArgument]
) -> Outside | None:
    paired = zip(seen, wide, strict=False) if len(seen) == len(wide) else ((r, r) for r in seen)
    for reached, true in paired:
        tensor = tensors[reached.argument]
        differs = (reached.low, reached.high) != (true.low, true.high)
        far = max(abs(true.low), abs(true.high)) // reached.itemsize >= MOST_32 - 1
        if differs and far and reached.line == true.line:
            return Outside(place, true, tensor, wrapped=True)
        if reached.low < 0 or reached.high >= tensor.storage:
            return Outside(place, reached, tensor, wrapped=False)
    return None


__all__ = ["Outside", "Reach", "Reached", "reach", "touches"]
