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

from egg.api.runs import Progress, start, state_of
from egg.api.teams import EXPERT
from egg.core.events import Inherited
from egg.core.parts import OF_A_MODEL, STAGING
from egg.core.settings import Settings
from egg.engine.budgets import find_budget
from egg.engine.log import LOG, LogWriter
from egg.engine.redaction import Redactor
from egg.engine.state import RunState
from egg.engine.waiting import Waiting
from egg.memory.standing import from_record

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
    with LogWriter(folder, redactor, create=False) as log:
        log.append(_left(progress.state))
    return None


def _own_settings(settings: Settings) -> Settings:
    """The same without a model; parts that an experiment leaves out of prompts are no matter here."""
    without = tuple(part for part in settings.without if part not in OF_A_MODEL)
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
        without=without,
    )


def _left(state: RunState) -> Inherited:
    """The winner, or the best that stands where nothing beat the reference."""
    closed = state.closed
    assert closed is not None
    best = closed.candidate or state.best
    source = state.sources[best] if best is not None else None
    return Inherited(state.started.run, source, state.handoffs, f"{closed.verdict}: {closed.reason}")
