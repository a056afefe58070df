"""What worker processes do with a task: run the engine on it, or write its file and compile that.

How tasks are shared out to processes, and what becomes of one that dies, is ``egg.api.benching.workers``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from record import blank
from rows import MACHINE, Row
from running import Terms, run_task

from egg.api.benching.channel import Line
from egg.api.benching.workers import results_of
from egg.core.source import Task
from egg.engine.judges import LocalJudge
from egg.hardware.gpus import resolve


@dataclass(frozen=True)
class RunTasks:
    """Every task is run by the engine, judged on ``device``."""

    terms: Terms
    device: str

    @contextmanager
    def ready(self) -> Iterator[Callable[[Task], Row]]:
        judge = LocalJudge(self.device)
        try:
            yield lambda task: run_task(task, self.terms, judge)
        finally:
            judge.close()


@dataclass(frozen=True)
class CompileTasks:
    """Every task's file is written into ``files`` and compiled for ``target``."""

    target: str
    files: Path

    @contextmanager
    def ready(self) -> Iterator[Callable[[Task], Row]]:
        from compiling import Compiler, compile_task  # with PyTorch, which only workers need

        compiler = Compiler(resolve(self.target))
        try:
            yield lambda task: compile_task(task, compiler, self.files)
        finally:
            compiler.close()


Trade = RunTasks | CompileTasks
"""What workers do with a task."""


@dataclass(frozen=True)
class Quiet:
    """A trade that has nothing to tell while it works."""

    trade: Trade

    def ready(self, line: Line) -> AbstractContextManager[Callable[[Task], Row]]:
        return self.trade.ready()


def rows_of(
    tasks: Sequence[Task], trades: Sequence[Trade], *, task_seconds: float, begin_until: float
) -> Generator[Row, None, None]:
    """A row for every task, as they come; none is begun after ``begin_until`` (of the monotonic clock)."""
    return results_of(
        tasks,
        [Quiet(trade) for trade in trades],
        lambda task, reason: blank(task, f"{MACHINE}{reason}"),
        task_seconds=task_seconds,
        may_begin=lambda: time.monotonic() < begin_until,
    )
