"""A bench: every task of a suite is a run, every run ends in a row; killed at any moment, it goes on.

Three things are on the disk before anything depends on them: the manifest before the first task, every event
of a run before the next, every row before the next is awaited. So the same call on the same folder goes on: a
task with a row is done, one that was cut off resumes from its log, the others begin. One process writes a
bench; its workers write their own runs, and no two of them the same.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from egg.api.benching.cost import Meter
from egg.api.benching.devices import alike
from egg.api.benching.folder import ROWS
from egg.api.benching.manifest import Manifest, enter, read_manifest, suite_of
from egg.api.benching.news import Ended, News, Opened
from egg.api.benching.options import BenchOptions, settled
from egg.api.benching.remote import RemoteJudges
from egg.api.benching.running import JudgeMaker, LocalJudges, rows_of
from egg.api.teams import check_priced
from egg.bench.listing import key_of
from egg.bench.row_files import RowsFile, read_rows
from egg.bench.rows import Row, complete, latest
from egg.bench.suites import Suite
from egg.core.errors import UsageError
from egg.core.source import Task
from egg.engine.lock import run_lock
from egg.engine.pools import JudgePool

PER_GPU = 4
"""Workers on one GPU: while one measures, the others write and compile."""
CORES_EACH = 2


@dataclass(frozen=True)
class BenchResult:
    """A bench as it stands."""

    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]
    """One for every task, in the suite's order; tasks it did not come to have a row that says so."""
    missing: tuple[str, ...] = ()
    """Keys of the tasks that have no row on the disk yet."""
    interrupted: bool = False
    over_cost: str = ""
    """What was spent of how much, where that is why tasks were not begun."""

    @property
    def failed(self) -> tuple[str, ...]:
        """Keys of the tasks that the machine or a fault ended: with ``retry`` they are tried again."""
        return tuple(row.key for row in self.rows if row.cut_short)


def run_bench(
    suite: Suite,
    options: BenchOptions,
    folder: Path,
    *,
    workers: int,
    environ: Mapping[str, str],
    pool: JudgePool | None = None,
    retry: bool = False,
    task_seconds: float | None = None,
    max_cost: float | None = None,
    begin_seconds: float | None = None,
    on_news: Callable[[News], None] = lambda news: None,
) -> BenchResult:
    """Begin the bench in ``folder``, or go on with it, until every task has its row.

    ``pool`` judges where one is given, and is left open; otherwise the devices that the settings name do.
    ``retry`` also takes up tasks whose row says that they were cut short. Once the bench has cost
    ``max_cost`` US dollars, or has run for ``begin_seconds``, no other task is begun, and those in flight go
    on to their end. ``on_news`` is called from this thread. Ctrl-C, SIGTERM and SIGHUP end the bench early:
    the result says ``interrupted``, and the same call goes on. Raises ``UsageError`` for options that can
    work for no task, for another suite or other options than the folder's, and where another process writes
    it; ``MachineError`` where no worker can go on.
    """
    if workers < 1:
        raise UsageError(f"a bench cannot run with {workers} workers", "give at least one")
    pooled, gpu = pool is not None, pool.gpu() if pool is not None else None
    options = settled(options, environ, pooled=pooled, gpu=gpu)
    if max_cost is not None:
        for choice in options.settings.all_models:
            check_priced(choice, environ)
    makers = _makers(options.settings.device, workers, pooled=pooled)
    folder = _made(folder)
    with run_lock(folder, "bench"):
        manifest = enter(folder, suite, options)
        with RowsFile(folder / ROWS) as rows:
            pending = rows.pending(suite.tasks, options.policy, retry=retry)
            waiting = {key_of(task) for task in pending}
            known = tuple(row for row in rows.rows if row.key not in waiting)
            meter = Meter(rows.rows, max_cost)
            until = time.monotonic() + (math.inf if begin_seconds is None else begin_seconds)

            def hear(news: News) -> None:
                meter.hear(news)
                on_news(news)

            with _ends_by_signal() as interrupted:
                hear(Opened(known, tuple(pending), min(workers, len(pending))))
                coming = rows_of(
                    _longest_first(pending),
                    makers,
                    options,
                    folder,
                    environ,
                    pool=pool,
                    task_seconds=task_seconds,
                    may_begin=lambda: meter.leaves_room() and time.monotonic() < until,
                    on_news=hear,
                )
                with closing(coming):
                    for row in coming:
                        rows.add(row)
                        waiting.remove(row.key)
                        hear(Ended(row))
        over_cost = meter.reached if waiting else ""
        result = _as_it_stands(folder, manifest, suite)
        return replace(result, interrupted=interrupted.is_set(), over_cost=over_cost)


def load_bench(folder: Path) -> BenchResult:
    """The bench in ``folder`` as it stands, touching nothing; for scores, exports and comparisons."""
    return _as_it_stands(folder, read_manifest(folder), suite_of(folder))


def default_workers(device: str) -> int:
    """How many tasks to have in flight where the caller names no number: enough to keep every judge busy."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(PER_GPU * len(alike(device)), cores // CORES_EACH))


def _as_it_stands(folder: Path, manifest: Manifest, suite: Suite) -> BenchResult:
    """From the disk: Ctrl-C may come when a row has been written, and before this process has noted it."""
    found = read_rows(folder / ROWS)
    there = latest(found)
    missing = tuple(key for key in suite.by_key if key not in there)
    return BenchResult(folder, manifest, tuple(complete(found, suite.tasks)), missing)


def _made(folder: Path) -> Path:
    """As an absolute path, which workers are given."""
    folder = folder.expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise UsageError(f"cannot make {folder}: {reason.strerror}", "choose another folder") from None
    return folder


def _longest_first(tasks: list[Task]) -> list[Task]:
    """Higher levels are whole networks: none of them should be the last to begin."""
    return sorted(tasks, key=lambda task: -(task.level or 0))


def _makers(device: str, workers: int, *, pooled: bool) -> list[JudgeMaker]:
    """A judge for every worker; those at hand are dealt out to the devices in turn."""
    if pooled:
        return [RemoteJudges()] * workers
    devices = alike(device)
    return [LocalJudges(devices[at % len(devices)]) for at in range(workers)]


@contextmanager
def _ends_by_signal() -> Iterator[threading.Event]:
    """Set where Ctrl-C ended what is inside, or SIGTERM or SIGHUP, unless the caller handles those."""
    interrupted = threading.Event()
    ours: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        ours = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, _interrupted)
        yield interrupted
    except KeyboardInterrupt:
        interrupted.set()
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt
