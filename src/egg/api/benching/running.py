"""Tasks to rows by worker processes: each runs the engine for one task at a time, with a judge of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from egg.api.benching.channel import WorkerChannel
from egg.api.benching.folder import WORKERS_LOG, run_folder
from egg.api.benching.news import Began, News, Reporter
from egg.api.benching.one import has_run, row_given_up, run_task
from egg.api.benching.options import BenchOptions
from egg.api.benching.remote import Relay
from egg.api.benching.workers import results_of
from egg.bench.listing import key_of
from egg.bench.rows import Row
from egg.core.source import Task
from egg.engine.journal import Judge
from egg.engine.judges import LocalJudge
from egg.engine.pools import JudgePool


class ClosingJudge(Judge, Protocol):
    def close(self) -> None: ...


class JudgeMaker(Protocol):
    """How a worker comes by its judge; picklable."""

    def make(self, channel: WorkerChannel) -> ClosingJudge: ...


@dataclass(frozen=True)
class LocalJudges:
    """A worker judges by itself, on ``device`` of this machine."""

    device: str

    def make(self, channel: WorkerChannel) -> ClosingJudge:
        return LocalJudge(self.device)


@dataclass(frozen=True)
class RunTasks:
    """Every task is a run of the bench in ``folder``."""

    judges: JudgeMaker
    options: BenchOptions
    folder: Path
    environ: Mapping[str, str]
    compile_threads: int
    """By which the judge's opponents are compiled: left alone, it takes every core, in every worker."""

    @contextmanager
    def ready(self, channel: WorkerChannel) -> Iterator[Callable[[Task], Row]]:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(self.compile_threads))
        with closing(self.judges.make(channel)) as judge:

            def work(task: Task) -> Row:
                key = key_of(task)
                channel.tell(Began(key, task.name, resumed=has_run(run_folder(self.folder, task))))
                return run_task(
                    task, self.options, self.folder, judge, self.environ, Reporter(key, channel.tell)
                )

            yield work


def rows_of(
    tasks: Sequence[Task],
    makers: Sequence[JudgeMaker],
    options: BenchOptions,
    folder: Path,
    environ: Mapping[str, str],
    *,
    pool: JudgePool | None = None,
    task_seconds: float | None = None,
    may_begin: Callable[[], bool] = lambda: True,
    on_news: Callable[[News], None] = lambda news: None,
) -> Generator[Row, None, None]:
    """A row for every task that may begin, as they come, from one worker for each of ``makers``.

    ``pool`` answers for :class:`~egg.api.benching.remote.RemoteJudges`. A task whose process dies twice, or
    that takes more than ``task_seconds``, has a row that says so. ``may_begin`` is asked before every task.
    Leaving early ends the workers.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // max(1, len(makers)))
    runners = [RunTasks(maker, options, folder, dict(environ), threads) for maker in makers]
    return results_of(
        tasks,
        runners,
        lambda task, reason: row_given_up(task, options, folder, reason),
        relay=Relay(pool) if pool is not None else None,
        task_seconds=task_seconds,
        may_begin=may_begin,
        log=folder / WORKERS_LOG,
        on_news=on_news,
    )
