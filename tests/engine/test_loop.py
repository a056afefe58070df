"""The whole path of a run, offline: every way a step can end, every way a stage can, every way a run can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import look, replay, state_of
from egg.core.errors import UsageError
from egg.core.events import Objected, SentBack, StageSkipped
from egg.core.plan import Draft, Pass, Unusable
from egg.core.settings import Caps
from egg.core.stage import Category, Stage
from egg.core.step import Decision, Origin
from egg.engine.log import read_log
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.engine.state import RunState
from tests.engine.scripts import (
    BUDGET,
    DIAGNOSIS,
    FULL,
    NOTHING,
    PASSING,
    act,
    begin,
    draft,
    go_on,
    plan,
    settings,
)


def events(folder: Path, kind: type) -> list:
    return [entry.event for entry in read_log(folder) if isinstance(entry.event, kind)]


def decisions(state: RunState) -> list[tuple[str, Decision]]:
    return [(step.stage.value, step.decision) for step in state.steps]


def test_the_whole_trajectory(tmp_path: Path) -> None:
    begin(tmp_path)
    progress = go_on(tmp_path, FULL)
    state = progress.state
    assert progress.waiting is None
    assert decisions(state) == [
        ("seed", Decision.PROMOTED),
        ("structure", Decision.PROMOTED),
        ("structure", Decision.FAILED),
        ("mapping", Decision.PROMOTED),
        ("tiling", Decision.PROMOTED),
        ("memory", Decision.NOT_BETTER),
    ]
    assert state.closed is not None
    assert state.closed.verdict == "faster"
    assert "1.67 times" in state.closed.reason


def test_a_failed_chain_goes_back_to_the_base(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, FULL).state
    failed = state.steps[2]
    assert [a.origin for a in failed.attempts] == [Origin.OPTIMIZE, Origin.REPAIR, Origin.REPAIR]
    assert failed.reason == "build: build.wrong after 2 repairs; back to the base"
    assert state.steps[3].base == failed.base == state.steps[1].candidate


def test_repairs_are_not_optimization_history(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, FULL).state
    seed = state.steps[0]
    assert len(state.steps_in(Stage.SEED)) == 1
    assert [a.failed for a in seed.attempts] == [True, False]
    assert seed.attempts[1].diagnosis == DIAGNOSIS


def test_stage_two_is_held_to_the_contract_without_an_evaluation(tmp_path: Path) -> None:
    begin(tmp_path)
    judge = ScriptedJudge(act)
    state = go_on(tmp_path, FULL, judge).state
    breach = state.steps[3].attempts[0]
    assert "structure contract is broken" in breach.objection
    assert "other_name" in breach.objection
    assert not any(breach.candidate in job for job in judge.judged)
    assert [e.candidate for e in events(tmp_path, Objected)] == [breach.candidate]
    assert state.contract is not None
    assert [k.name for k in state.contract.kernels] == ["double"]


def test_the_sweep_records_every_point_and_rewrites_the_file(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, FULL).state
    step = state.steps[4]
    assert step.sweep is not None
    assert [(p.values, p.milliseconds) for p in step.sweep.points] == [
        ({"BLOCK": 128}, pytest.approx(0.7)),
        ({"BLOCK": 64}, pytest.approx(0.9)),
        ({"BLOCK": 256}, pytest.approx(0.6)),
    ]
    assert step.candidate == step.sweep.winner
    assert "\nBLOCK = 256\n" in state.sources[step.sweep.winner]


def test_a_gain_within_the_noise_moves_the_best_but_not_the_base(tmp_path: Path) -> None:
    begin(tmp_path, settings(replace(BUDGET, side_by_side=False)))
    state = go_on(tmp_path, FULL).state
    last = state.steps[-1]
    assert last.decision is Decision.NOT_BETTER
    assert "noise" in last.reason
    assert state.base == state.steps[4].candidate
    assert state.best == last.candidate


def test_predictions_stand_beside_outcomes(tmp_path: Path) -> None:
    begin(tmp_path)
    step = go_on(tmp_path, FULL).state.steps[1]
    assert step.plan is not None
    assert step.gain is not None
    assert (step.plan.prediction.speedup, step.gain.ratio) == (1.5, pytest.approx(2.0))
    assert step.gain.measured


def test_stages_hand_on_what_they_found(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, FULL).state
    structure = next(h for h in state.handoffs if h.stage is Stage.STRUCTURE)
    assert structure.contract == state.contract
    assert structure.open_bottleneck == "too slow"
    assert [s.number for s in structure.tried] == [2, 3]
    assert structure.reason == "its 2 steps are used"


def test_the_seed_is_tried_again_and_then_given_up(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        "coder.seed seed 1": Unusable("no code"),
        "coder.seed seed 2": draft("refuse static"),
        "debugger seed 2.1": Unusable("no idea"),
        "coder.repair seed 2.1": draft("refuse static", body="x * 3"),
        "debugger seed 2.2": DIAGNOSIS,
        "coder.repair seed 2.2": Unusable("a refusal"),
    }
    state = go_on(tmp_path, script).state
    assert decisions(state) == [("seed", Decision.UNUSABLE), ("seed", Decision.UNUSABLE)]
    assert state.closed is not None
    assert (state.closed.verdict, state.closed.candidate) == ("reference", None)
    assert state.closed.reason == "no accepted kernel"
    assert [e.stage for e in events(tmp_path, StageSkipped)] == ["structure", "mapping", "tiling", "memory"]
    returned = (tmp_path / "kernel.py").read_text()
    assert "ModelNew = Model" in returned
    assert "class Model(nn.Module)" in returned


def test_without_a_diagnosis_the_judges_own_hint_guides_the_repair(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("refuse static"),
        "debugger seed 1.1": Unusable("no idea"),
        "coder.repair seed 1.1": draft("0.5 ms"),
    }
    repaired = go_on(tmp_path, script).state.steps[0].attempts[1]
    assert repaired.diagnosis is not None
    assert repaired.diagnosis.modification_plan == "look at it"


def test_nothing_beats_the_reference(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, {**PASSING, "coder.seed seed 1": draft("1.0 ms")}).state
    assert state.closed is not None
    assert (state.closed.verdict, state.closed.candidate) == ("reference", None)
    assert "nothing beats the reference beyond the noise" in state.closed.reason


class Strict(ScriptedJudge):
    """With full care it refuses every kernel of half a millisecond."""

    def _evaluation(self, job):
        if job.id.endswith(".full") and "0.5 ms" in job.question.candidate.source:
            source = job.question.candidate.source.replace("0.5 ms", "refuse regrade")
            strict = replace(job.question.candidate, source=source)
            found = super()._evaluation(replace(job, question=replace(job.question, candidate=strict)))
            own = job.question.candidate
            return replace(found, candidate_hash=own.hash, candidate_sha256=own.sha256)
        return super()._evaluation(job)


def test_a_seed_that_full_care_refuses_is_repaired(tmp_path: Path) -> None:
    """The first repair passes the quick look alone, the second one full care."""
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.5 ms"),
        "debugger seed 2.1": DIAGNOSIS,
        "coder.repair seed 2.1": draft("0.5 ms", body="x * 3"),
        "debugger seed 2.2": DIAGNOSIS,
        "coder.repair seed 2.2": draft("0.6 ms"),
    }
    state = go_on(tmp_path, script, Strict(act)).state
    assert state.closed is not None
    assert state.closed.verdict == "faster"
    repairs = state.steps[-1]
    assert (repairs.stage, repairs.decision) == (Stage.SEED, Decision.PROMOTED)
    assert state.closed.candidate == repairs.candidate
    assert [attempt.failed for attempt in repairs.attempts] == [True, True, False]
    assert replay(tmp_path).state.closed == state.closed


def test_a_seed_that_full_care_refuses_is_given_up_without_repairs_left(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.5 ms"),
        "debugger seed 2.1": DIAGNOSIS,
        "coder.repair seed 2.1": Unusable("no more careful way"),
    }
    state = go_on(tmp_path, script, Strict(act)).state
    assert state.closed is not None
    assert (state.closed.verdict, state.closed.candidate) == ("reference", None)
    assert "full care refused it at regrade" in state.closed.reason


def test_a_kernel_that_full_care_refuses_is_not_returned(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.7 ms"),
        "designer structure 1": plan(Category.OPERATOR_FUSION),
        "coder.optimize structure 1": draft("0.5 ms"),
        "designer structure 2": NOTHING,
    }
    state = go_on(tmp_path, script, Strict(act)).state
    assert state.closed is not None
    assert state.closed.verdict == "faster"
    assert state.closed.candidate == state.steps[0].candidate


def test_the_same_program_is_not_judged_twice(tmp_path: Path) -> None:
    begin(tmp_path)
    judge = ScriptedJudge(act)
    same = Draft(
        "# another comment\n"
        + draft("1.0 ms")
        .source.replace("at = ", "place = ")
        .replace("+ at", "+ place")
        .replace("at < n", "place < n")
    )
    script = {
        **PASSING,
        "coder.seed seed 1": draft("1.0 ms"),
        "designer structure 1": plan(Category.OPERATOR_FUSION),
        "coder.optimize structure 1": same,
        "coder.repair structure 1.1": draft("0.5 ms"),
        "designer structure 2": NOTHING,
    }
    state = go_on(tmp_path, script, judge).state
    assert state.steps[1].attempts[0].objection == "the same program was written in step 1"
    assert len([job for job in judge.judged if job.endswith(".quick")]) == 2


def test_a_plan_that_failed_is_sent_back_once_and_then_ends_the_step(tmp_path: Path) -> None:
    begin(tmp_path)
    slow = plan(Category.OPERATOR_FUSION, "fuse it all")
    script = {
        **PASSING,
        "coder.seed seed 1": draft("1.0 ms"),
        "designer structure 1": slow,
        "coder.optimize structure 1": draft("1.5 ms"),
        "designer structure 2": plan(Category.OPERATOR_FUSION, "Fuse it all."),
        "designer structure 2 again": slow,
    }
    state = go_on(tmp_path, script).state
    assert decisions(state)[1:3] == [
        ("structure", Decision.NOT_BETTER),
        ("structure", Decision.REPEATED),
    ]
    assert "step 2 tried the same" in events(tmp_path, SentBack)[0].objection


@pytest.mark.parametrize(
    ("bad", "objection"),
    [
        (plan(Category.TILE_SHAPE), "does not belong in this stage"),
        (plan(Category.OPERATOR_FUSION, skill="magic"), "no skill 'magic' was offered"),
    ],
)
def test_a_plan_outside_what_is_allowed_is_sent_back(tmp_path: Path, bad, objection: str) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("1.0 ms"),
        "designer structure 1": bad,
        "designer structure 1 again": NOTHING,
    }
    state = go_on(tmp_path, script).state
    assert objection in events(tmp_path, SentBack)[0].objection
    assert state.steps[1].decision is Decision.PASSED


def test_patience_ends_a_stage(tmp_path: Path) -> None:
    budget = replace(BUDGET, patience=2, steps={**BUDGET.steps, Stage.STRUCTURE: 9})
    begin(tmp_path, settings(budget))
    script = {
        **PASSING,
        "coder.seed seed 1": draft("1.0 ms"),
        "designer structure 1": plan(Category.OPERATOR_FUSION, "one"),
        "coder.optimize structure 1": draft("1.001 ms"),
        "designer structure 2": plan(Category.OPERATOR_FUSION, "two"),
        "coder.optimize structure 2": draft("1.002 ms"),
    }
    state = go_on(tmp_path, script).state
    structure = next(h for h in state.handoffs if h.stage is Stage.STRUCTURE)
    assert structure.reason == "no gain in 2 tries"


def test_a_kernel_at_the_floor_is_left_alone(tmp_path: Path) -> None:
    begin(tmp_path)
    judge = ScriptedJudge(act, floor=0.48)
    state = go_on(tmp_path, {"coder.seed seed 1": draft("0.5 ms")}, judge).state
    assert [s.stage for s in state.steps] == [Stage.SEED]
    assert all("roofline floor" in e.reason for e in events(tmp_path, StageSkipped))
    assert state.closed is not None
    assert state.closed.verdict == "faster"


def test_malformed_tunables_are_an_objection(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("1.0 ms", extra='TUNABLES = {"NO_SUCH": (1, 2)}'),
        "coder.repair seed 1.1": draft("0.5 ms"),
    }
    state = go_on(tmp_path, script).state
    assert "NO_SUCH" in state.steps[0].attempts[0].objection
    assert state.steps[0].decision is Decision.PROMOTED


@pytest.mark.parametrize(
    ("caps", "stopped", "steps"),
    [
        (Caps(steps=2), "all 2 steps are used", 2),
        (Caps(minutes=3 / 60), "minutes are used", 2),
    ],
)
def test_caps_end_the_search_but_not_what_it_found(
    tmp_path: Path, caps: Caps, stopped: str, steps: int
) -> None:
    begin(tmp_path, settings(caps=caps))
    state = go_on(tmp_path, FULL).state
    assert state.closed is not None
    assert stopped in state.closed.stopped
    assert len(state.steps) == steps
    assert state.handoffs[-1].reason == state.closed.stopped
    assert state.closed.candidate is not None or state.closed.reason.startswith("nothing beats")
    assert replay(tmp_path).state == state


def test_a_cap_within_a_step_closes_it_first(tmp_path: Path) -> None:
    begin(tmp_path, settings(caps=Caps(minutes=1 / 60)))
    state = go_on(tmp_path, FULL).state
    assert decisions(state) == [("seed", Decision.FAILED)]
    assert state.closed is not None
    assert state.closed.reason == "no accepted kernel"


def test_the_state_is_the_fold_and_the_replay_agrees(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, FULL).state
    assert state_of(tmp_path) == state
    assert replay(tmp_path).state == state
    assert look(tmp_path).state == state


def test_a_finished_run_goes_on_no_further(tmp_path: Path) -> None:
    begin(tmp_path)
    go_on(tmp_path, FULL)
    before = (tmp_path / "events.jsonl").read_bytes()
    team, judge = ScriptedTeam({}), ScriptedJudge(act)
    progress = go_on(tmp_path, {}, judge, team)
    assert (team.asked, judge.judged, progress.waiting) == ([], [], None)
    assert (tmp_path / "events.jsonl").read_bytes() == before


def test_a_pass_ends_the_stage_with_its_reason(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.5 ms"),
        "designer structure 1": Pass("one kernel already"),
    }
    state = go_on(tmp_path, script).state
    assert state.handoffs[1].reason == "nothing worth optimizing: one kernel already"


def test_a_breach_that_only_the_judge_can_see_is_not_returned(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.9 ms"),
        "tuner mapping 1": plan(Category.WORK_PER_PROGRAM),
        "coder.optimize mapping 1": draft("0.3 ms twice"),
        "coder.repair mapping 1.1": draft("0.3 ms twice", body="x + x"),
        "coder.repair mapping 1.2": draft("0.3 ms twice", body="2 * x"),
    }
    state = go_on(tmp_path, script).state
    step = state.steps_in(Stage.MAPPING)[0]
    assert step.decision is Decision.FAILED
    assert "launched" in step.reason
    assert state.closed is not None
    assert state.closed.candidate == state.steps[0].candidate
    assert replay(tmp_path).state == state


def test_a_point_of_a_sweep_that_breaks_the_contract_is_not_returned(tmp_path: Path) -> None:
    begin(tmp_path)

    def twice_at_256(candidate):
        found = act(candidate)
        return replace(found, kernels={"double": 2}) if "\nBLOCK = 256" in candidate.source else found

    state = go_on(tmp_path, FULL, ScriptedJudge(twice_at_256)).state
    sweep = state.steps[4].sweep
    assert sweep is not None
    assert "contract" in next(p.outcome for p in sweep.points if p.values["BLOCK"] == 256)
    assert "\nBLOCK = 256" not in state.sources[sweep.winner]
    assert not any("\nBLOCK = 256" in k.candidate.source for k in state.kernels.values())
    assert replay(tmp_path).state == state


def test_a_verdict_of_another_kind_of_machine_is_not_recorded(tmp_path: Path) -> None:
    begin(tmp_path)

    class Elsewhere(ScriptedJudge):
        GPU = "NVIDIA A100"

    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.9 ms"),
        "designer structure 1": plan(Category.DATA_LAYOUT),
    }
    with pytest.raises(UsageError, match="the script has no"):
        go_on(tmp_path, script)
    script["coder.optimize structure 1"] = draft("0.5 ms")
    with pytest.raises(UsageError, match="measured on NVIDIA A100"):
        go_on(tmp_path, script, Elsewhere(act))
    script["designer structure 2"] = NOTHING
    assert go_on(tmp_path, script).waiting is None


def test_a_plan_nobody_wrote_may_be_made_again(tmp_path: Path) -> None:
    begin(tmp_path)
    same = plan(Category.OPERATOR_FUSION, "fuse it all")
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.9 ms"),
        "designer structure 1": same,
        "coder.optimize structure 1": Unusable("cut off"),
        "designer structure 2": same,
        "coder.optimize structure 2": draft("0.5 ms"),
    }
    state = go_on(tmp_path, script).state
    assert decisions(state)[1:3] == [("structure", Decision.UNUSABLE), ("structure", Decision.PROMOTED)]
