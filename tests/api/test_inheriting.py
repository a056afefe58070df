"""What a run takes over from the built-in team's own run before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from egg.api import teams
from egg.api.inheriting import inherit, own_run
from egg.api.runs import advance, replay, start, state_of
from egg.core.parts import reduced
from egg.core.plan import Weighed
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.stage import Stage
from egg.engine.budgets import BUDGETS
from egg.engine.redaction import Redactor
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from tests.engine import scripts

OWN = {**scripts.PASSING, "coder.seed seed 1": scripts.draft("2.0 ms")}
OTHER = Weighed("split the product", "few tiles", 1.3)


class Weighing(ScriptedTeam):
    """Knows one other structure."""

    def alternatives(self, brief: Brief) -> tuple[Weighed, ...]:
        assert brief.base is not None
        assert "2.0 ms" in brief.base.candidate.source
        assert brief.assignment.stage is Stage.STRUCTURE
        return (OTHER,)


@pytest.mark.parametrize(("team", "known"), [(Weighing, (OTHER,)), (ScriptedTeam, ())])
def test_the_structures_that_were_weighed_are_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team: type[ScriptedTeam], known: tuple[Weighed, ...]
) -> None:
    monkeypatch.setattr(teams, "_expert", lambda: team(OWN))
    settings = reduced(
        Settings(
            "step",
            BUDGETS["quick"],
            device="cuda:0",
            target="H200",
            first="expert",
            without=("staging", "evidence"),
        )
    )
    run = tmp_path / "run"
    start(run, scripts.TASK, settings, scripts.FACTS, name="double")

    def go_on(place: Path, state: object):
        return advance(place, lambda started, journal: team(OWN), ScriptedJudge(scripts.act))

    assert inherit(run, state_of(run), Redactor(), go_on) is None
    own = state_of(own_run(run)).started.settings
    assert (own.without, own.budget) == ((), BUDGETS["quick"])
    inherited = state_of(run).inherited
    assert inherited is not None
    assert inherited.weighed == known
    assert settings.budget != BUDGETS["quick"]
    asked: list[Brief] = []

    class Hearing(ScriptedTeam):
        def design(self, brief: Brief):
            asked.append(brief)
            return super().design(brief)

    advance(run, lambda started, journal: Hearing(scripts.PASSING), ScriptedJudge(scripts.act))
    assert asked[0].weighed == known
    assert replay(run).state == state_of(run)
