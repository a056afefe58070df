"""Where a sequence repeats itself: blocks of the same symbols, one right behind another.

The graphs of AOTAutograd do not keep the calls of a module together: gradients are added between modules, and
what is computed again stands beside what needs it. But a layer comes out of it the same way each time. So the
layers of such a graph are found by their operators alone: a run in which every operator equals the one
``period`` places before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Places ``start`` to ``stop``, of which each symbol equals the one ``period`` places later."""

    start: int
    stop: int
    period: int

    def blocks(self, offset: int) -> list[tuple[int, int]]:
        """Whole blocks, the first of them ``offset`` places behind the start."""
        begins = range(self.start + offset, self.stop - self.period + 1, self.period)
        return [(begin, begin + self.period) for begin in begins]


def runs(symbols: Sequence[Hashable], least: int) -> Iterator[Run]:
    """Runs of blocks of at least ``least`` symbols, disjoint, those that cover the most first.

    The widest run is taken, then what is left on either side of it is searched. Of runs that cover the same
    places the one with the shortest period has the most blocks.
    """
    numbers: dict[Hashable, int] = {}
    coded = [numbers.setdefault(symbol, len(numbers)) for symbol in symbols]
    waiting = [(0, len(coded))]
    while waiting:
        start, stop = waiting.pop()
        found = _widest(coded, start, stop, least)
        if found is not None:
            yield found
            waiting += [(start, found.start), (found.stop, stop)]


def _widest(coded: Sequence[int], start: int, stop: int, least: int) -> Run | None:
    best: Run | None = None
    for period in range(least, (stop - start) // 2 + 1):
        equal = 0
        for place in range(start, stop - period):
            equal = equal + 1 if coded[place] == coded[place + period] else 0
            if equal < period:
                continue
            if best is None or equal + period > best.stop - best.start:
                best = Run(place + 1 - equal, place + 1 + period, period)
    return best
