"""Loops whose loads run ahead of what the loop changes in memory.

The compiler issues loads of a loop up to ``n - 1`` iterations early and takes no notice of memory that the
loop itself stores to, or changes atomically. A load of what one of those iterations left gets what lay there
before. The stages ``n`` are those that the loop names (``tl.range(..., num_stages=n)``), and then all its
loads run ahead; otherwise those of the launch, and then the loads that a ``tl.dot`` of the same iteration
follows from (:mod:`~egg.evaluator.interpreter.feeding`). Only innermost loops are pipelined, and none that
has a barrier in it; with ``flatten=True`` a loop and the one in it are one. A loop that the compiler removes
is no inner loop: one whose bounds are constants and that runs at most once, and one without any effect,
which is here one that touches no memory and has no product.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from egg.evaluator.interpreter.feeding import feeds_dot

USUAL_STAGES = 3
"""Of a launch that names none."""


class Loop:
    """One loop under way: the turns at which its latest iterations began, as many as are in flight."""

    def __init__(self, stages: int, code: CodeType, *, named: bool, flat: bool) -> None:
        self.stages = stages
        self.code = code
        self.named = named
        self.flat = flat and named
        self.begun: deque[int] = deque(maxlen=max(stages, 1))
        self.pipelined = stages > 1
        self.dots = False
        self.trips = 0
        self.works = False
        """Whether memory was touched in it, or a product computed, or another loop that stays ran."""

    def stays(self, fixed: bool) -> bool:
        """Whether the compiler keeps this loop as one; ``fixed``: its bounds are constants."""
        return self.works and not (fixed and self.trips <= 1)

    def runs_ahead(self) -> bool:
        """Whether the load that is interpreted now is one of those that do."""
        if self.named:
            return True
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        return frame is not None and feeds_dot(self.code, frame.f_lineno, frame.f_globals)


class Pipelines:
    """The loops of each program of a launch, and a count of iterations that never repeats."""

    def __init__(self) -> None:
        self.turn = 0
        self.stages = USUAL_STAGES
        """Of the launch."""
        self.dots = False
        """Whether the kernel was seen to have a ``tl.dot``."""
        self._loops: dict[int, list[Loop]] = {}

    def run(
        self,
        program: int,
        values: Iterable[Any],
        stages: int | None,
        code: CodeType,
        *,
        flat: bool = False,
        fixed: bool = False,
    ) -> Iterator[Any]:
        """The values of a loop, each of them as a turn; ``fixed`` where its bounds are constants."""
        loops = self._loops.setdefault(program, [])
        if loops and loops[-1].flat:
            yield from self._joined(loops[-1], values)
            return
        loop = Loop(stages or self.stages, code, named=stages is not None, flat=flat)
        loops.append(loop)
        try:
            for value in values:
                self._begin(loop)
                loop.trips += 1
                yield value
        finally:
            loops.remove(loop)
            self._left(loops, loop, fixed)

    @staticmethod
    def _left(loops: list[Loop], loop: Loop, fixed: bool) -> None:
        """The loop around one that stays is not innermost, so it is not pipelined."""
        if loops and loop.stays(fixed):
            loops[-1].pipelined = False
        if loops:
            loops[-1].works |= loop.works
            loops[-1].dots |= loop.dots and not loop.stays(fixed)

    def _joined(self, loop: Loop, values: Iterable[Any]) -> Iterator[Any]:
        """Iterations of an inner loop as those of the outer, whose own begins with the first of them."""
        for at, value in enumerate(values):
            if at:
                self._begin(loop)
            yield value

    def _begin(self, loop: Loop) -> None:
        self.turn += 1
        loop.begun.append(self.turn)

    def barrier(self, program: int) -> None:
        """The innermost loop has a barrier in it."""
        loops = self._loops.get(program)
        if loops:
            loops[-1].pipelined = False

    def dot(self, program: int) -> None:
        """The innermost loop has a product in it."""
        self.dots = True
        loops = self._loops.get(program)
        if loops:
            loops[-1].dots = loops[-1].works = True

    def touch(self, program: int) -> None:
        """The innermost loop accesses memory."""
        loops = self._loops.get(program)
        if loops:
            loops[-1].works = True

    def ahead(self, program: int) -> Loop | None:
        """The loop of which loads may run ahead now."""
        loops = self._loops.get(program)
        if not loops or not loops[-1].pipelined:
            return None
        return loops[-1] if loops[-1].named or loops[-1].dots or self.dots else None
