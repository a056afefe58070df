"""One task from its text to its row: a run of the engine in a folder of its own, opened or resumed.

Whatever happens becomes the row. A machine that fails is given a second chance, from the run's log on; what
fails again is ``Unable``, and worth another try some other day. A team with a fault ends its own search only:
what was accepted before stands, and the row's notes tell of the trouble.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from egg.api.benching.final import SearchJudge, final_of
from egg.api.benching.folder import kernel_file, run_folder, write_whole
from egg.api.benching.options import BenchOptions
from egg.api.optimizing import begin, carry_on
from egg.api.runs import state_of
from egg.api.watching import Watcher
from egg.bench.outcomes import row_of_run, settings_of_row
from egg.bench.rows import TROUBLE, NoKernel, Row, Unable, row_of
from egg.core.codec import to_json
from egg.core.errors import EggError, MachineError, TaskError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.policy import Level
from egg.core.settings import Settings
from egg.core.source import Task
from egg.engine.journal import Diverged, Judge
from egg.engine.lock import Locked
from egg.engine.log import LOG
from egg.engine.state import RunState

TRIES = 2
"""Of a run that the machine failed: it goes on from its log."""
LOCKED_SECONDS = 20.0
"""For a process that was left behind by a killed bench to end."""
REASON, TRACE = 300, 1500
"""Characters of a reason, and of the end of a trace, that a row keeps."""
FINAL = "final.json"
"""Beside the run's log: the evaluation that the row reports, where it is none of the run's own."""


@dataclass(frozen=True)
class Trouble:
    """Why a task was cut short."""

    reason: str
    machine: bool
    """Whether the machine, and none of task, kernel and team, is to blame."""
    trace: str = ""

    @classmethod
    def of(cls, error: Exception, folder: Path) -> Trouble:
        """A fault without a class of its own is this program's: its trace says where."""
        match error:
            case TaskError():
                return cls(error.message, machine=False)
            case Diverged():
                return cls(f"the log is another program's: {error.message}; remove {folder}", machine=True)
            case EggError():
                return cls(error.message, machine=True)
            case OSError() | MemoryError():
                return cls(f"{type(error).__name__}: {error}", machine=True, trace=traceback.format_exc())
        return cls(f"{type(error).__name__}: {error}", machine=False, trace=traceback.format_exc())


def run_task(
    task: Task,
    options: BenchOptions,
    folder: Path,
    judge: Judge,
    environ: Mapping[str, str],
    watcher: Watcher | None = None,
) -> Row:
    """The row of ``task`` in the bench at ``folder``, under options that are settled.

    Never raises for what a task, a kernel, a model or this machine may do: that is the row, ``Unable``
    where the machine is to blame and ``NoKernel`` for the rest. ``KeyboardInterrupt`` passes through.
    """
    started, before = time.monotonic(), 0.0
    watcher = watcher or Watcher()
    run = run_folder(folder, task)
    state: RunState | None = None
    final: Evaluation | None = None
    try:
        state = opened(task, options.settings, run, environ)
        before = state.ledger.seconds
        trouble = searched(run, _search_judge(options.level, judge, watcher), environ, watcher)
        state = state_of(run)
        if trouble is None or not trouble.machine:
            final = final_of(state, run / FINAL, options.level, judge)
            _keep_kernel(kernel_file(folder, task), state, final)
    except Exception as error:
        trouble = Trouble.of(error, run)
    row = _row(task, options, folder, state, final, trouble)
    wall = before + time.monotonic() - started
    return replace(row, spent=replace(row.spent, wall_seconds=round(wall, 3)))


# -- the run -----------------------------------------------------------------------------------------


def opened(task: Task, settings: Settings, run: Path, environ: Mapping[str, str]) -> RunState:
    """The run of a task, begun where there is none. A run with other options belongs to another bench."""
    _unlocked(lambda: has_run(run) or begin(task, settings, run, environ))
    state = state_of(run)
    if state.started.task.sha256 != task.sha256 or to_json(state.started.settings) != to_json(settings):
        raise UsageError(f"{run} is the run of another task, or under other options", "use another folder")
    return state


def has_run(run: Path) -> bool:
    """Whether a run was begun there: one that was killed before its first event is begun again."""
    log = run / LOG
    return log.is_file() and b"\n" in log.read_bytes()


def searched(run: Path, judge: Judge, environ: Mapping[str, str], watcher: Watcher) -> Trouble | None:
    """Go on with the run as far as it gets; why it broke off, or nothing."""
    trouble: Trouble | None = None
    for _ in range(TRIES):
        try:
            _unlocked(lambda: carry_on(run, state_of(run), watcher, environ, judge=judge))
            return None
        except MachineError as error:
            trouble = Trouble.of(error, run)
        except Exception as error:
            return Trouble.of(error, run)
    return trouble


def _search_judge(level: Level, judge: Judge, watcher: Watcher) -> SearchJudge:
    return SearchJudge(judge, level, all_opponents=level is Level.QUICK, on_jobs=watcher.judging)


def _unlocked(act: Callable[[], object]) -> None:
    """Do it as soon as no other process holds the run."""
    patience = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            act()
            return
        except Locked:
            if time.monotonic() > patience:
                raise
        time.sleep(0.5)


# -- the row -----------------------------------------------------------------------------------------


def row_given_up(task: Task, options: BenchOptions, folder: Path, reason: str) -> Row:
    """The row of a task whose process is gone: what its run had spent by then is in its log."""
    run = run_folder(folder, task)
    state: RunState | None = None
    with suppress(EggError, OSError):
        state = state_of(run)
    return _row(task, options, folder, state, None, Trouble(reason, machine=True))


def _keep_kernel(path: Path, state: RunState, final: Evaluation | None) -> None:
    """The kernel file of an accepted row; none stays behind where another judging refused it."""
    if final is not None and final.accepted:
        write_whole(path, state.sources[final.candidate_hash])
    else:
        path.unlink(missing_ok=True)


def _row(
    task: Task,
    options: BenchOptions,
    folder: Path,
    state: RunState | None,
    final: Evaluation | None,
    trouble: Trouble | None,
) -> Row:
    """A row in any case: a run that none can be made of is a trouble, too."""
    run = run_folder(folder, task)
    place = str(run.relative_to(folder))
    try:
        return _row_of(task, options, place, state, final, trouble)
    except Exception as error:
        fault = Trouble.of(error, run)
        known = fault if trouble is None else replace(trouble, trace=fault.trace)
        return _row_of(task, options, place, None, None, known)


def _row_of(
    task: Task,
    options: BenchOptions,
    run: str,
    state: RunState | None,
    final: Evaluation | None,
    trouble: Trouble | None,
) -> Row:
    if state is None:
        assert trouble is not None
        settings = settings_of_row(options.settings)
        row = row_of(task, NoKernel(""), options.policy, settings=settings, run=run)
    else:
        row = row_of_run(state, final=final, run=run)
    if final is None:
        row = replace(row, policy=options.policy)
    if trouble is None:
        return row
    reason = trouble.reason[:REASON]
    if trouble.machine:
        row = replace(row, verdict=Unable(reason), policy=options.policy)
    elif isinstance(row.verdict, NoKernel):
        row = replace(row, verdict=NoKernel(reason))
    if not trouble.trace:
        return row
    return replace(row, notes={**row.notes, TROUBLE: reason, "trace": trouble.trace[-TRACE:]})
