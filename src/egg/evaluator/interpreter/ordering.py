"""What atomics order between programs: vector clocks.

Each program counts its releases. A store carries the count at which it happened (its *epoch*).
A release at an element leaves there everything that the program knows to be settled, its own
stores so far included; an acquire takes that over. A store of epoch ``e`` by program ``q`` is
settled for program ``p`` if ``p`` knows of a release of ``q`` that came behind it. What several
programs read is settled if it is for each of them: a *group* is a list of stamps, the latest first.

Programs are interpreted in one order of many. An order that shows in this one need not hold in
another: a kernel that adds to a counter before and after its work looks as if it waited. So a
launch whose conflicts were ordered by atomics says so (:attr:`Order.needed`), and the kernel's
next launches are interpreted with programs that take turns
(:mod:`~egg.evaluator.interpreter.turns`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

EPOCH_SHIFT = 31
PROGRAM = (1 << EPOCH_SHIFT) - 1
"""Lower bits of a stamp: the program, from 1; above them its epoch."""
SEVERAL = 1 << 62
"""In a stamp: it is of a group, whose number stands in place of the program's."""


class Order:
    """Who knows of whose releases, in one launch."""

    def __init__(self) -> None:
        self.needed = False
        """Whether a conflict was none because of it."""
        self._epochs: dict[int, int] = {}
        self._known: dict[int, dict[int, int]] = {}
        self._left: dict[int, dict[int, int]] = {}
        self._groups: list[tuple[int, int]] = []
        """The latest stamp of each, and the stamp of the rest."""
        self._numbers: dict[tuple[int, int], int] = {}

    def stamp(self, program: int) -> int:
        return program | (self._epochs.get(program, 1) << EPOCH_SHIFT)

    def synchronise(self, program: int, address: int, acquires: bool, releases: bool) -> None:
        known = self._known.setdefault(program, {})
        left = self._left.setdefault(address, {})
        if acquires:
            for other, epoch in left.items():
                if known.get(other, 0) < epoch:
                    known[other] = epoch
        if releases:
            epoch = self._epochs.get(program, 1)
            for other, seen in known.items():
                if left.get(other, 0) < seen:
                    left[other] = seen
            left[program] = epoch
            self._epochs[program] = epoch + 1

    def unordered(self, program: int, stamps: np.ndarray) -> np.ndarray:
        """Which of these accesses of other programs are not settled for ``program``."""
        ids = stamps & PROGRAM
        others = (ids != 0) & ((ids != program) | ((stamps & SEVERAL) != 0))
        if not others.any() or not self._known.get(program):
            return others
        known = self._known[program]
        loose = others.copy()
        for stamp in np.unique(stamps[others]):
            if self._settled(known, program, int(stamp)):
                loose[stamps == stamp] = False
        self.needed = self.needed or bool((others & ~loose).any())
        return loose

    def _settled(self, known: dict[int, int], program: int, stamp: int) -> bool:
        return all(
            one & PROGRAM == program or known.get(one & PROGRAM, 0) >= one >> EPOCH_SHIFT
            for one in self._members(stamp)
        )

    def _members(self, stamp: int) -> Iterator[int]:
        while stamp & SEVERAL:
            latest, stamp = self._groups[(stamp & PROGRAM) - 1]
            yield latest
        yield stamp

    def _joined(self, stamp: int, mine: int) -> int:
        """The stamp of a group of readers: ``mine``, and those of ``stamp``."""
        if stamp & SEVERAL and self._groups[(stamp & PROGRAM) - 1][0] == mine:
            return stamp
        number = self._numbers.get((mine, stamp))
        if number is None:
            self._groups.append((mine, stamp))
            number = self._numbers[mine, stamp] = len(self._groups)
        return SEVERAL | number

    def reading(self, program: int, before: np.ndarray) -> np.ndarray | int:
        """The stamps of readers, once ``program`` reads as well."""
        mine = self.stamp(program)
        if not before.any():
            return mine
        needed = self.needed
        loose = self.unordered(program, before)
        self.needed = needed  # two readers are no conflict
        if not loose.any():
            return mine
        if (before == before[0]).all():
            return self._joined(int(before[0]), mine)
        readers = np.full(before.shape, mine)
        for stamp in np.unique(before[loose]):
            readers[before == stamp] = self._joined(int(stamp), mine)
        return readers
