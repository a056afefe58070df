"""One task from its text to its row: a run of the engine with the built-in team, in a folder of its own.

Every kernel of the loop is timed against eager, ``torch.compile`` and ``reduce-overhead`` in one session;
the engine compares by eager alone. What a row reports, by its level, is what ``egg.api.benching.final`` says.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from record import ACCEPTED, blank, row_of
from rows import MACHINE, Row
from tasks import key_of

from egg.api.benching.final import SearchJudge, final_of
from egg.api.benching.one import has_run, searched
from egg.api.optimizing import begin
from egg.api.runs import state_of
from egg.api.watching import Watcher
from egg.core.errors import EggError, TaskError, UsageError
from egg.core.policy import Level, LibraryCalls
from egg.core.settings import Caps, Settings
from egg.core.source import Task
from egg.engine.budgets import find_budget
from egg.engine.journal import Judge
from egg.engine.log import read_log
from egg.engine.state import RunState


@dataclass(frozen=True)
class Terms:
    """How every task of a batch is run."""

    device: str
    budget: str
    library_calls: LibraryCalls
    level: Level
    runs: Path
    minutes: float | None = None
    skills: bool = False
    """Whether the built-in skills are offered, which plans may name."""

    def settings(self) -> Settings:
        return Settings(
            "expert",
            find_budget(self.budget),
            library_calls=self.library_calls,
            device=self.device,
            caps=Caps(minutes=self.minutes),
            skills=() if self.skills else None,
        )


def run_task(task: Task, terms: Terms, judge: Judge) -> Row:
    """Never raises for what a task, a kernel or this machine may do: that is the row."""
    started = time.perf_counter()
    level, problem = key_of(task)
    place = terms.runs / f"{level}_{problem}"
    spent, trouble, trace = 0.0, "", ""
    try:
        state = opened(task, place / "run", terms)
        spent = state.ledger.seconds
        broken = searched(place / "run", SearchJudge(judge, terms.level, all_opponents=True), {}, Watcher())
        if broken is not None:
            trouble, trace = f"{MACHINE if broken.machine else ''}{broken.reason}", broken.trace
        row = _row(place, terms, judge)
    except TaskError as error:
        row = blank(task, f"no file: {error.message}")
    except EggError as error:
        row = blank(task, f"{MACHINE}{error.message}")
    except Exception as error:  # ours: the batch goes on, and the row says what to mend
        trouble, trace = f"{MACHINE}{type(error).__name__}: {error}", traceback.format_exc()
        row = blank(task, trouble)
    if trouble:
        if row["verdict"] != ACCEPTED:
            row["verdict"] = (trouble if trouble.startswith(MACHINE) else f"no file: {trouble}")[:300]
        row |= {"trouble": trouble[:500], "trace": trace[-1500:]}
    whole = spent + time.perf_counter() - started
    row["seconds"] = {"all": round(whole, 2), **row.get("seconds", {})}
    return row


# -- the run -----------------------------------------------------------------------------------------


def opened(task: Task, folder: Path, terms: Terms) -> RunState:
    """The run of a task as it stands, begun where there is none; other terms need another folder."""
    if not has_run(folder):
        begin(task, terms.settings(), folder, {})
        return state_of(folder)
    state = state_of(folder)
    was, now = state.started.settings, terms.settings()
    same = (was.budget, was.library_calls, was.team) == (now.budget, now.library_calls, now.team)
    if not same or state.started.task.hash != task.hash:
        raise UsageError(f"{folder} is a run under other terms", "use another folder with --runs")
    return state


# -- what counts -------------------------------------------------------------------------------------


def _row(place: Path, terms: Terms, judge: Judge) -> Row:
    state = state_of(place / "run")
    final = final_of(state, place / "final.json", terms.level, judge)
    if final is not None and final.accepted:
        (place / "kernel.py").write_text(state.sources[final.candidate_hash], encoding="utf-8")
    row = row_of(state, [entry.event for entry in read_log(place / "run")], final)
    if final is not None and final not in state.evaluations.values():
        row["seconds"]["final"] = round(final.seconds, 2)
    return row
