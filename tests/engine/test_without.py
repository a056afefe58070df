"""Runs with a part left out: the same loop, less of it, recorded and replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import replay, state_of
from egg.core.codec import from_json, to_json
from egg.core.errors import UsageError
from egg.core.events import ContractMade, StageSkipped
from egg.core.parts import PARTS, parts_named, reduced
from egg.core.plan import Answer
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.stage import Category, Stage
from egg.engine.budgets import BUDGETS
from egg.engine.log import read_log
from egg.engine.scripted import ScriptedTeam
from egg.engine.state import RunState
from tests.engine import scripts

SEED: dict[str, Answer] = {**scripts.PASSING, "coder.seed seed 1": scripts.draft("2.0 ms")}


class Seeing(ScriptedTeam):
    """Keeps the briefs of the planners."""

    def __init__(self, script: dict[str, Answer]) -> None:
        super().__init__(script)
        self.briefs: list[Brief] = []

    def design(self, brief: Brief):
        self.briefs.append(brief)
        return super().design(brief)

    def tune(self, brief: Brief):
        self.briefs.append(brief)
        return super().tune(brief)


def ran(folder: Path, script: dict[str, Answer], *without: str) -> tuple[RunState, Seeing]:
    settings = reduced(replace(scripts.settings(), without=without))
    scripts.begin(folder, settings)
    team = Seeing(script)
    state = scripts.go_on(folder, script, team=team).state
    assert state.closed is not None
    assert replay(folder).state == state_of(folder) == state
    return state, team


def test_a_stage_that_is_left_out_is_skipped_and_the_others_go_on(tmp_path: Path) -> None:
    _, team = ran(tmp_path / "run", SEED, "tiling", "memory")
    assert team.asked == ["coder.seed seed 1", "designer structure 1", "tuner mapping 1"]
    skipped = [e.event for e in read_log(tmp_path / "run") if isinstance(e.event, StageSkipped)]
    assert [(event.stage, event.reason) for event in skipped] == [
        (Stage.TILING, "left out by --without"),
        (Stage.MEMORY, "left out by --without"),
    ]


def test_without_the_stage_of_the_structure_the_first_kernels_is_the_contract(tmp_path: Path) -> None:
    state, team = ran(tmp_path / "run", SEED, "structure")
    assert team.asked[1:] == ["tuner mapping 1", "tuner tiling 1", "tuner memory 1"]
    assert state.contract is not None
    assert [kernel.name for kernel in state.contract.kernels] == ["double"]


def test_without_a_contract_a_tuning_stage_may_change_the_structure(tmp_path: Path) -> None:
    script = {
        **SEED,
        "tuner mapping 1": scripts.plan(Category.WORK_PER_PROGRAM),
        "coder.optimize mapping 1": scripts.draft("1.0 ms", name="another"),
    }
    with pytest.raises(UsageError, match=r"coder\.repair"):
        ran(tmp_path / "with", script)
    state, team = ran(tmp_path / "run", script, "contract")
    assert state.contract is None
    assert not any(isinstance(entry.event, ContractMade) for entry in read_log(tmp_path / "run"))
    assert "1.0 ms" in state.sources[state.best or ""]
    assert team.briefs[-1].assignment.may_not_change == "What the program computes."


def test_without_staging_one_stage_allows_every_kind_of_change(tmp_path: Path) -> None:
    script = {
        **SEED,
        "designer structure 1": scripts.plan(Category.CACHE_POLICY, "evict first"),
        "coder.optimize structure 1": scripts.draft("1.0 ms", body="x + x"),
        "designer structure 2": scripts.plan(Category.OPERATOR_FUSION, "fuse"),
        "coder.optimize structure 2": scripts.draft("0.5 ms", body="2 * x", name="fused"),
        "designer structure 3": scripts.NOTHING,
    }
    state, team = ran(tmp_path / "run", script, "staging")
    assert [step.stage for step in state.steps] == [Stage.SEED, *[Stage.STRUCTURE] * 3]
    assert "0.5 ms" in state.sources[state.best or ""]
    assert state.contract is None
    assert not any(cue.startswith("tuner") for cue in team.asked)
    budget = BUDGETS["quick"].steps
    assert state.started.settings.budget.steps[Stage.STRUCTURE] == sum(budget.values()) - budget[Stage.SEED]


def test_without_the_debugger_a_repair_has_the_judges_words(tmp_path: Path) -> None:
    script = {
        **scripts.PASSING,
        "coder.seed seed 1": scripts.draft("refuse correctness"),
        "coder.repair seed 1.1": scripts.draft("2.0 ms"),
    }
    state, _ = ran(tmp_path / "run", script, "debugger")
    diagnosis = state.steps[0].attempts[1].diagnosis
    assert diagnosis is not None
    assert (diagnosis.critical_issue, diagnosis.modification_plan) == ("something was seen", "look at it")


def test_without_short_memory_and_evidence_briefs_hold_neither(tmp_path: Path) -> None:
    script = {
        **SEED,
        "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse"),
        "coder.optimize structure 1": scripts.draft("3.0 ms", body="x + x"),
    }
    passing = {**script, "designer structure 2": scripts.NOTHING}
    _, seeing = ran(tmp_path / "with", passing)
    remembered = {**script, "tuner mapping 1": scripts.NOTHING}
    settings = reduced(replace(scripts.settings(), without=("short-memory", "evidence")))
    scripts.begin(tmp_path / "run", settings)
    team = Seeing(remembered)
    with pytest.raises(UsageError, match="designer structure"):
        # A scripted team counts what it remembers, so its second question sounds like the first, which
        # the engine then sends back: both show that nothing is remembered.
        scripts.go_on(tmp_path / "run", {}, team=team)
    assert len(seeing.briefs[1].trajectory.steps) == 1
    assert all(not brief.trajectory.steps for brief in team.briefs)
    assert all(brief.diagnosis is None for brief in team.briefs)


@pytest.mark.parametrize(
    ("text", "team", "message"),
    [
        ("wings", "llm", "no part 'wings'"),
        ("tools,", "llm", "no part ''"),
        ("edits,tools", "expert", "--without edits,tools has no effect"),
        ("staging,tiling", "llm", "no stage tiling"),
    ],
)
def test_a_part_that_cannot_be_left_out_is_a_mistake(text: str, team: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parts_named(text, team)
    if "no part" in message:
        assert all(part in caught.value.hint for part in PARTS)


def test_parts_are_recorded_in_one_order_and_set_what_they_are_about_to_nothing() -> None:
    named = parts_named("tools, width,skills,long-memory", "llm")
    assert named == ("skills", "long-memory", "width", "tools")
    settings = replace(Settings("llm", BUDGETS["deep"], width=4, skills=(), lessons="/store"), without=named)
    less = reduced(settings)
    assert (less.width, less.skills, less.lessons, less.budget.tool_calls) == (1, None, None, 0)
    assert reduced(less) == less
    assert from_json(Settings, to_json(less)) == less
    older = {key: value for key, value in to_json(less).items() if key != "without"}
    assert from_json(Settings, older).without == ()
