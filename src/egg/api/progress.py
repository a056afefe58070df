"""One line on standard error that follows a run, for a program or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from egg.api.watching import Watcher
from egg.core.events import Event
from egg.engine.state import RunState

WIDTH = 100


@contextmanager
def progress_on(name: str, *, shown: bool, stream: TextIO | None = None) -> Iterator[Watcher]:
    """A watcher that rewrites one line on a terminal, and prints a line a stage elsewhere."""
    if not shown:
        yield Watcher()
        return
    view = Line(name, stream or sys.stderr)
    try:
        yield view
    finally:
        view.end()


class Line(Watcher):
    """Stage, steps, kernels judged, the best so far."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self._rewrites = stream.isatty()
        self._start, self._last = time.monotonic(), ""

    def event(self, event: Event, state: RunState, new: bool) -> None:
        stage = state.stage.value if state.stage is not None else "done" if state.closed else "deciding"
        best = state.best_kernel
        found = f", best {_speed(best.score.speedup)}" if best is not None else ""
        count = f"{len(state.steps)} steps, {state.ledger.evaluations} judged"
        self._show(stage, f"egg: {self._name}: {stage}, {count}{found}")

    def _show(self, stage: str, text: str) -> None:
        line = f"{text}, {time.monotonic() - self._start:.0f} s"[:WIDTH]
        if self._rewrites:
            self._stream.write(f"\r{line:<{WIDTH}}")
        elif stage != self._last:
            self._stream.write(f"{line}\n")
        self._last = stage
        self._stream.flush()

    def end(self) -> None:
        if self._rewrites and self._last:
            self._stream.write("\n")
            self._stream.flush()


def _speed(speedup: object) -> str:
    median = getattr(speedup, "median", None)
    return f"{median:.2f}x eager" if median is not None else "verified (speed not measured)"
