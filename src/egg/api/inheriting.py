"""A run that begins where the built-in team ends: that team's own run comes first, in a folder of its own.

The built-in team goes through all stages as ``egg optimize --team expert`` does, under the same settings
and the same judge, and costs no tokens. What it ended with becomes the second event of the run
(:class:`egg.core.events.Inherited`): its best kernel, tuned, is the one to begin with, and what it tried
goes into the prompts of the team that continues. Where it has to wait for a judge elsewhere, the run waits
with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from egg.api import teams
from egg.api.runs import Progress, start, state_of
from egg.api.teams import EXPERT
from egg.core.events import Inherited
from egg.core.parts import STAGING
from egg.core.plan import Weighed
from egg.core.policy import Policy
from egg.core.recording import use_of_recordings
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.stage import Stage
from egg.core.step import Trajectory
from egg.engine.budgets import find_budget
from egg.engine.effects import diagnosed
from egg.engine.log import LOG, LogWriter
from egg.engine.redaction import Redactor
from egg.engine.stages import SEARCH
from egg.engine.state import RunState
from egg.engine.translation import own_kernel
from egg.engine.waiting import Waiting
from egg.memory.standing import from_record

MOST_WEIGHED = 12
"""Structures that a prompt lists."""

GoOn = Callable[[Path, RunState], Progress]
"""Goes on with a run until it ends or has to wait."""


def own_run(folder: Path) -> Path:
    """Where the built-in team's own run of a run is."""
    return folder / EXPERT


def owes(state: RunState) -> bool:
    """Whether the built-in team's own run is still to come, or to end."""
    return state.started.settings.first == EXPERT and state.inherited is None


def inherit(folder: Path, state: RunState, redactor: Redactor, go_on: GoOn) -> Waiting | None:
    """Take the built-in team's run to its end and record what it leaves; or return what it waits for."""
    place, started = own_run(folder), state.started
    if not (place / LOG).is_file():
        lessons = from_record(started.standings)
        start(
            place,
            started.task,
            _own_settings(started.settings),
            started.facts,
            name=f"{started.run}-{EXPERT}",
            redactor=redactor,
            lessons=lessons,
        )
    own = state_of(place)
    progress = go_on(place, own) if own.closed is None else Progress(own, None)
    if progress.waiting is not None:
        return progress.waiting
    left = _left(progress.state, weighed(progress.state, teams._expert()))
    with LogWriter(folder, redactor, create=False) as log:
        log.append(left)
    return None


def weighed(state: RunState, team: object) -> tuple[Weighed, ...]:
    """What the built-in team weighed for the kernel its run ended on, the most promising first.

    A structure is priced with what the judge saw of that kernel, so the prices are those of the end.
    """
    weigh = getattr(team, "alternatives", None)
    if weigh is None or state.base_kernel is None:
        return ()
    settings = state.started.settings
    own = own_kernel(state)
    row = next(row for row in SEARCH if row.stage is Stage.STRUCTURE)
    brief = Brief(
        task=state.started.task,
        policy=Policy(settings.precision, settings.library_calls),
        facts=state.started.facts,
        assignment=row.assignment,
        trajectory=Trajectory(Stage.STRUCTURE, ()),
        base=state.base_kernel,
        best=state.best_kernel,
        handoffs=state.handoffs,
        diagnosis=diagnosed(state),
        own=own,
        own_diagnosis=diagnosed(state, own) if own is not None else None,
    )
    return weigh(brief)[:MOST_WEIGHED]


def _own_settings(settings: Settings) -> Settings:
    """The same without a model, and whole: an experiment leaves parts out of what comes after."""
    budget = find_budget(settings.budget.name) if STAGING in settings.without else settings.budget
    return replace(
        settings,
        team=EXPERT,
        budget=budget,
        first="",
        width=1,
        model=None,
        models={},
        efforts={},
        without=(),
        compiled=use_of_recordings(EXPERT, settings.device),
    )


def _left(state: RunState, others: tuple[Weighed, ...]) -> Inherited:
    """The winner, or the best that stands where nothing beat the reference."""
    closed = state.closed
    assert closed is not None
    best = closed.candidate or state.best
    source = state.sources[best] if best is not None else None
    ended = f"{closed.verdict}: {closed.reason}"
    return Inherited(state.started.run, source, state.handoffs, ended, others)
