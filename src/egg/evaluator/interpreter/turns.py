"""Programs that take turns: for kernels whose programs wait for each other by atomics.

One after another, programs never meet in the middle, and an atomic that orders nothing looks as
if it did. Here up to :data:`AT_ONCE` programs are under way; before each atomic the running one
hands over to another, chosen by lot. They start in the order of a GPU
(:mod:`egg.evaluator.interpreter.places`), so that a program that waits for an earlier one is not waited
for itself.

Each program is a thread, of which exactly one runs.
"""

from __future__ import annotations

import _thread
import random
from collections.abc import Callable, Iterator

import numpy as np

AT_ONCE = 48
_start = _thread.start_new_thread
"""As it was when this was imported: the watch over a candidate's threads does not count these."""


class _Abandoned(BaseException):
    """Ends a program whose launch has failed elsewhere."""


class _Turn:
    """One program under way; its lock is free while it may run."""

    def __init__(self, program: int) -> None:
        self.program = program
        self.lock = _thread.allocate_lock()
        self.lock.acquire()


class Turns:
    """The programs of one launch; ``enter`` readies the interpreter for one, ``body`` runs it."""

    def __init__(self, programs: int, enter: Callable[[int], None], body: Callable[[], None]) -> None:
        self._waiting: Iterator[int] = iter(range(1, programs + 1))
        self._enter, self._body = enter, body
        self._under_way: list[_Turn] = []
        self._now: _Turn | None = None
        self._error: BaseException | None = None
        self._over = _thread.allocate_lock()
        self._over.acquire()

    def run(self) -> None:
        """To the end of all programs; raises what the first of them raised."""
        for _ in range(AT_ONCE):
            self._begin_next()
        if self._under_way:
            self._wake(random.choice(self._under_way))
            self._over.acquire()
        if self._error is not None:
            raise self._error

    def hand_over(self) -> None:
        """Called by the running program before an atomic: another may go on."""
        mine = self._now
        assert mine is not None
        others = [turn for turn in self._under_way if turn is not mine]
        if others:
            self._wake(random.choice(others))
            self._wait(mine)

    def _begin_next(self) -> None:
        program = next(self._waiting, None)
        if program is not None:
            turn = _Turn(program)
            self._under_way.append(turn)
            _start(self._live, (turn,))

    def _live(self, turn: _Turn) -> None:
        try:
            with np.errstate(all="ignore"):
                self._wait(turn)
                self._body()
        except _Abandoned:
            pass
        except BaseException as error:
            self._error = self._error or error
        self._under_way.remove(turn)
        if self._error is None:
            self._begin_next()
        if self._under_way:
            self._wake(self._under_way[0] if self._error else random.choice(self._under_way))
        else:
            self._over.release()

    def _wake(self, turn: _Turn) -> None:
        self._now = turn
        turn.lock.release()

    def _wait(self, turn: _Turn) -> None:
        turn.lock.acquire()
        if self._error is not None:
            raise _Abandoned
        self._enter(turn.program)
