"""Loops whose loads run ahead of their stores: ``tl.range(..., num_stages=n)``.

The compiler issues the loads of such a loop up to ``n - 1`` iterations early and takes no notice of memory
that the loop itself stores to. A load of what one of those iterations stored gets what lay there before. Only
innermost loops are pipelined, and none that has a barrier in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class Loop:
    """One loop under way: the turns at which its latest iterations began, as many as are in flight."""

    def __init__(self, stages: int) -> None:
        self.stages = stages
        self.begun: deque[int] = deque(maxlen=max(stages, 1))
        self.pipelined = stages > 1


class Pipelines:
    """The loops of each program of a launch, and a count of iterations that never repeats."""

    def __init__(self) -> None:
        self.turn = 0
        self._loops: dict[int, list[Loop]] = {}

    def run(self, program: int, values: Iterable[Any], stages: int) -> Iterator[Any]:
        """The values of a loop, each of them as a turn."""
        loops = self._loops.setdefault(program, [])
        self.barrier(program)
        loop = Loop(stages)
        loops.append(loop)
        try:
            for value in values:
                self.turn += 1
                loop.begun.append(self.turn)
                yield value
        finally:
            loops.remove(loop)

    def barrier(self, program: int) -> None:
        """The innermost loop has a barrier in it, or another loop."""
        loops = self._loops.get(program)
        if loops:
            loops[-1].pipelined = False

    def ahead(self, program: int) -> Loop | None:
        """The loop whose loads run ahead now."""
        loops = self._loops.get(program)
        return loops[-1] if loops and loops[-1].pipelined else None
