"""The verbs on runs: start, go on, look, replay. A run is a folder; everything about it is in its log."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from egg import __version__
from egg.api.result import write_result
from egg.api.skills import JournaledAdvisor, advisor_of
from egg.api.teams import EXPERT, absent_team
from egg.api.watching import Watcher
from egg.core.errors import MachineError, UsageError
from egg.core.events import SCHEMA, RunStarted
from egg.core.exemplar import Exemplar
from egg.core.facts import Facts
from egg.core.roles import Advisor, Team
from egg.core.settings import Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.engine.effects import Effects
from egg.engine.index import write_index
from egg.engine.journal import Diverged, Journal, Judge
from egg.engine.judges import OfflineJudge
from egg.engine.log import LOG, LogWriter, read_log
from egg.engine.loop import optimize
from egg.engine.redaction import Redactor
from egg.engine.state import RunState, fold
from egg.engine.waiting import EndOfLog, Waiting, WaitingForTeam
from egg.memory.standing import Standings, to_record

TeamMaker = Callable[[RunStarted, Journal], Team]
"""Makes the team of a run; its model calls go through the journal."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come, and what it waits for; nothing when it has ended."""

    state: RunState
    waiting: Waiting | None


def start(
    folder: Path,
    task: Task,
    settings: Settings,
    facts: Facts,
    *,
    name: str,
    redactor: Redactor | None = None,
    lessons: Mapping[Stage, Standings] | None = None,
    first: Candidate | None = None,
    exemplars: tuple[Exemplar, ...] = (),
) -> None:
    """Begin a run in ``folder``, which must not hold one; ``lessons`` and ``exemplars`` are what memory has
    for it.

    ``first`` is a kernel file to begin with, in the place of the one that a team would write.
    """
    with LogWriter(folder, redactor) as log:
        if log.history:
            raise UsageError(f"there is a run in {folder} already", f"go on with `egg resume {folder}`")
        remembered = to_record(lessons or {})
        source = first.source if first is not None else None
        log.append(
            RunStarted(SCHEMA, name, __version__, task, settings, facts, remembered, source, exemplars)
        )


def advance(
    folder: Path,
    make_team: TeamMaker,
    judge: Judge,
    *,
    watcher: Watcher | None = None,
    redactor: Redactor | None = None,
    advisor: Advisor | None = None,
) -> Progress:
    """Go on with a run until it ends or has to wait. However this is left, nothing recorded is lost."""
    look_on = watcher or Watcher()
    with LogWriter(folder, redactor, create=False) as log:
        events = [entry.event for entry in log.history]
        journal = Journal(events, lambda event: log.append(event).event, look_on.event)
        try:
            progress = _run(journal, make_team, judge, advisor)
        except BaseException:
            with suppress(MachineError):
                project(folder)
            raise
        project(folder)
        return progress


def look(folder: Path) -> Progress:
    """Where a run stands and what it waits for, without touching it."""
    journal = Journal([entry.event for entry in read_log(folder)], lambda event: event)
    if owed := _owed(folder, journal.state):
        return Progress(journal.state, owed)
    return _run(journal, absent_team, OfflineJudge(), advisor_of(journal.state.started))


def replay(folder: Path, watcher: Watcher | None = None) -> Progress:
    """Decide everything again from the answers and offers in the log; no question is asked.

    Raises :class:`Diverged` at the first decision that comes out differently.
    """
    events = [entry.event for entry in read_log(folder)]
    journal = Journal(events, None, (watcher or Watcher()).event)
    if _owed(folder, journal.state):
        return Progress(journal.state, EndOfLog("the log ends before the built-in team's own run did"))
    progress = _run(journal, absent_team, OfflineJudge(), None)
    if not journal.at_end:
        raise Diverged(len(events), None, "an earlier end")
    return progress


def _owed(folder: Path, state: RunState) -> Waiting | None:
    """What a run waits for while the built-in team's own run, which comes first, has not ended."""
    if state.started.settings.first != EXPERT or state.inherited is not None:
        return None
    own = folder / EXPERT
    return (look(own).waiting if (own / LOG).is_file() else None) or WaitingForTeam()


def state_of(folder: Path) -> RunState:
    """What the log says, as it stands."""
    return fold(entry.event for entry in read_log(folder))


def project(folder: Path) -> None:
    """Write what can be made from the log for others to read: index, kernels, result."""
    entries = read_log(folder)
    try:
        write_index(folder, entries)
        write_result(folder, fold(entry.event for entry in entries))
    except (OSError, sqlite3.Error) as reason:
        raise MachineError(
            f"cannot write beside the log in {folder}: {reason}",
            "make room on the disk; the log is whole, and the run resumes from its last event",
        ) from reason


def _run(journal: Journal, make_team: TeamMaker, judge: Judge, advisor: Advisor | None) -> Progress:
    team = make_team(journal.state.started, journal)
    effects = Effects(journal, team, judge, JournaledAdvisor(advisor, journal))
    try:
        optimize(effects)
    except Waiting as waiting:
        return Progress(journal.state, waiting)
    return Progress(journal.state, None)
