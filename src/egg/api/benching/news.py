"""What goes on inside a bench: plain data, which travels between processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from egg.api.watching import Watcher
from egg.bench.rows import Row
from egg.core.events import Evaluated, Event, Exchanged, RunClosed, StageOpened, StepClosed
from egg.core.source import Task
from egg.core.stage import Stage
from egg.engine.state import RunState


@dataclass(frozen=True)
class Opened:
    """The first news: what an earlier command left, and what is to be done now."""

    rows: tuple[Row, ...]
    """Of tasks that are settled."""
    pending: tuple[Task, ...]
    workers: int


@dataclass(frozen=True)
class Began:
    """A worker took up a task."""

    key: str
    name: str
    resumed: bool
    """Whether its run was begun by an earlier command, or by a process that died."""


@dataclass(frozen=True)
class Moved:
    """How far a task has come, everything of its earlier attempts included."""

    key: str
    stage: Stage | None
    """Of the run; ``None`` before the first and after the last."""
    doing: str
    """A few words: ``judging 4 kernels``, ``asking designer``; empty where nothing more is known."""
    steps: int = 0
    evaluations: int = 0
    tokens: int = 0
    money: float = 0.0
    """US dollars, of the calls whose price is known."""
    speedup: float | None = None
    """Over eager, of the best kernel so far; ``None`` without one or without a GPU."""


@dataclass(frozen=True)
class Lost:
    """A task's process died, or was ended because it took too long."""

    key: str
    reason: str
    retried: bool
    """Whether the task is tried once more; otherwise its row follows."""


@dataclass(frozen=True)
class Ended:
    """A task's row, on the disk by now."""

    row: Row


News = Opened | Began | Moved | Lost | Ended


class Reporter(Watcher):
    """Observes a run and reports how far it has come, in few words and not too often."""

    def __init__(self, key: str, tell: Callable[[News], None]) -> None:
        self._key = key
        self._tell = tell
        self._state: RunState | None = None

    def event(self, event: Event, state: RunState, new: bool) -> None:
        self._state = state
        if new and isinstance(event, StageOpened | StepClosed | Exchanged | Evaluated | RunClosed):
            self._report("")

    def judging(self, jobs: int) -> None:
        self._report(f"judging {jobs} kernel{'s' if jobs != 1 else ''}")

    def asked(self, purpose: str) -> None:
        self._report(f"asking {purpose}")

    def waiting(self, seconds: float, reason: str) -> None:
        self._report(f"waiting {seconds:.0f} s: {reason}")

    def _report(self, doing: str) -> None:
        state = self._state
        if state is None:
            self._tell(Moved(self._key, None, doing))
            return
        best = state.best_kernel
        speedup = best.score.speedup if best is not None else None
        self._tell(
            Moved(
                self._key,
                state.stage,
                doing,
                steps=len(state.steps),
                evaluations=state.ledger.evaluations,
                tokens=state.ledger.usage.input_tokens + state.ledger.usage.output_tokens,
                money=state.ledger.cost,
                speedup=speedup.median if speedup is not None else None,
            )
        )
