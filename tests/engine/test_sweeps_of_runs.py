"""Sweeps of a run, offline: what the tuning stages write is timed beside the base, and the fastest judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import replay
from egg.core.errors import UsageError
from egg.core.evaluation import Contender, Gate, Refusal, Rejected
from egg.core.plan import Answer
from egg.core.settings import Caps
from egg.core.source import Candidate
from egg.core.stage import Category, Stage
from egg.core.step import Decision, Gain, Step
from egg.engine.scripted import Act, ScriptedJudge
from egg.engine.state import RunState
from tests.engine.scripts import BUDGET, DIAGNOSIS, PASSING, act, begin, draft, go_on, plan, settings

OPEN: dict[str, Answer] = {
    **PASSING,
    "coder.seed seed 1": draft("0.8 ms"),
    "tuner tiling 1": plan(Category.TILE_SHAPE),
    "coder.optimize tiling 1": draft(
        "6.4 / BLOCK + 0.5 ms", extra='TUNABLES = {"BLOCK": (64, 128, 256, 512)}'
    ),
}
"""A sweep of four points, the largest of which is the fastest."""
TEN = ", ".join(str(2**n) for n in range(4, 14))
TEN_OPEN: dict[str, Answer] = {
    **OPEN,
    "coder.optimize tiling 1": draft("6.4 / BLOCK + 0.5 ms", extra=f'TUNABLES = {{"BLOCK": ({TEN})}}'),
}
DIED = Refusal(Gate.TIMING, "limits.died", "the process ended", "look at it")
INEXACT = Refusal(Gate.CORRECTNESS, "correctness.error", "it is off", "mask it")


def at_block(size: int, found: Act) -> Callable[[Candidate], Act]:
    """As the file says, except at one point."""
    return lambda candidate: found if f"\nBLOCK = {size}\n" in candidate.source else act(candidate)


def tuned(folder: Path, judge: ScriptedJudge) -> tuple[RunState, Step]:
    state = go_on(folder, OPEN, judge).state
    assert replay(folder).state == state
    return state, state.steps_in(Stage.TILING)[0]


def outcomes_of(step: Step) -> dict[object, str]:
    assert step.sweep is not None
    return {point.values["BLOCK"]: point.outcome for point in step.sweep.points}


def test_a_file_and_its_points_are_timed_beside_the_base_and_the_winner_is_judged(tmp_path: Path) -> None:
    begin(tmp_path)
    judge = ScriptedJudge(act)
    state, step = tuned(tmp_path, judge)
    assert outcomes_of(step) == dict.fromkeys((64, 128, 256, 512), "measured")
    assert step.sweep is not None
    assert step.decision is Decision.PROMOTED
    assert step.candidate == step.sweep.winner == step.attempts[0].candidate
    assert "\nBLOCK = 512\n" in state.sources[step.sweep.winner]
    jobs = [job.split("/")[1].split(".") for job in judge.judged]
    assert [(name, kind.rpartition("-")[0] or kind) for name, kind in jobs[:3]] == [
        (state.steps[0].candidate, "quick"),
        (state.steps[0].candidate, "side-by-side"),
        (step.candidate, "quick"),
    ]
    assert state.kernels.keys() == {state.steps[0].candidate, step.candidate}


def test_a_point_that_is_the_base_again_does_not_run_beside_itself(tmp_path: Path) -> None:
    begin(tmp_path)
    same = draft("0.8 ms", block=64)
    opened = draft("0.8 ms", block=64, extra='TUNABLES = {"BLOCK": (64, 128)}')
    script = {**OPEN, "coder.seed seed 1": same, "coder.optimize tiling 1": opened}
    state = go_on(tmp_path, script, ScriptedJudge(act)).state
    (timing,) = [found for found in state.evaluations.values() if found.contenders]
    assert ["\nBLOCK = 128\n" in state.sources[c.candidate_hash] for c in timing.contenders] == [True]
    step = state.steps_in(Stage.TILING)[0]
    assert outcomes_of(step) == {64: "measured", 128: "measured"}
    assert replay(tmp_path).state == state


def test_many_points_are_timed_in_several_groups(tmp_path: Path) -> None:
    begin(tmp_path, settings(replace(BUDGET, sweep_points=10)))
    judge = ScriptedJudge(act)
    state = go_on(tmp_path, TEN_OPEN, judge).state
    step = state.steps_in(Stage.TILING)[0]
    assert len(outcomes_of(step)) == 10
    assert "\nBLOCK = 8192\n" in state.sources[str(step.candidate)]
    assert sum("side-by-side" in job for job in judge.judged) == 2
    assert replay(tmp_path).state == state


FORMER_NAMES = {
    '"contenders":': '"rivals":',
    '"side_by_side":': '"heats":',
    '"outcome":': '"told":',
    ".side-by-side-": ".heat-",
    "egg.run/2": "egg.run/1",
    "egg.evaluation/2": "egg.evaluation/1",
}


def test_a_log_with_the_names_of_version_1_replays_and_resumes(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, OPEN, ScriptedJudge(act)).state
    log = tmp_path / "events.jsonl"
    text = log.read_text()
    for present, former in FORMER_NAMES.items():
        assert present in text
        text = text.replace(present, former)
    log.write_text(text)
    old = replay(tmp_path).state
    assert old.started.settings == state.started.settings
    assert (old.steps, old.best, old.closed) == (state.steps, state.best, state.closed)
    assert old.evaluations.keys() == state.evaluations.keys()

    lines = text.splitlines(keepends=True)
    timed = next(at for at, line in enumerate(lines) if ".heat-" in line)
    log.write_text("".join(lines[: timed + 1]))
    judge = ScriptedJudge(act)
    resumed = go_on(tmp_path, OPEN, judge).state
    assert resumed.steps == state.steps
    assert not any("side-by-side" in job for job in judge.judged), "the log knows these times"


def test_a_timing_that_failed_costs_its_own_points_only(tmp_path: Path) -> None:
    begin(tmp_path, settings(replace(BUDGET, sweep_points=10)))

    class OneDies(ScriptedJudge):
        def _evaluation(self, job):
            found = super()._evaluation(job)
            if len(found.contenders) != 2:
                return found
            lost = tuple(
                Contender(rival.candidate_hash, None, None, "limits.died") for rival in found.contenders
            )
            return replace(found, verdict=Rejected(DIED), contenders=lost)

    judge = OneDies(act)
    step = go_on(tmp_path, TEN_OPEN, judge).state.steps_in(Stage.TILING)[0]
    assert list(outcomes_of(step).values()).count("limits.died") == 2
    assert step.decision is Decision.PROMOTED
    assert len([job for job in judge.judged if job.endswith(".quick")]) == 2


def test_an_answer_that_names_no_contenders_is_refused(tmp_path: Path) -> None:
    """An older judge drops what it does not know, and would be heard on the base instead."""
    begin(tmp_path)

    class Older(ScriptedJudge):
        def _evaluation(self, job):
            return super()._evaluation(replace(job, question=replace(job.question, contenders=())))

    with pytest.raises(UsageError, match="nothing of the files"):
        go_on(tmp_path, OPEN, Older(act))
    assert go_on(tmp_path, OPEN).state.closed is not None


def test_what_is_no_faster_beside_the_base_is_not_judged(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {**OPEN, "coder.seed seed 1": draft("0.51 ms")}
    judge = ScriptedJudge(act)
    state = go_on(tmp_path, script, judge).state
    step = state.steps_in(Stage.TILING)[0]
    assert (step.decision, step.candidate) == (Decision.NOT_BETTER, None)
    assert step.reason == "0.995x the base, timed beside it: no gain beyond the noise"
    assert step.sweep is not None
    assert "\nBLOCK = 512\n" in state.sources[step.sweep.winner], "the fastest of those that were tried"
    assert step.gain == Gain(pytest.approx(0.51 / 0.5125), beyond_noise=False, measured=True)
    assert [job for job in judge.judged if job.endswith(".quick")] == judge.judged[:1]
    assert replay(tmp_path).state == state


def test_a_file_that_leaves_nothing_open_runs_beside_the_base_alone(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {**OPEN, "coder.optimize tiling 1": draft("0.6 ms", block=256)}
    judge = ScriptedJudge(act)
    step = go_on(tmp_path, script, judge).state.steps_in(Stage.TILING)[0]
    assert (step.decision, step.sweep) == (Decision.PROMOTED, None)
    assert sum("side-by-side" in job for job in judge.judged) == 1


def test_a_run_begun_without_side_by_side_timing_judges_every_point(tmp_path: Path) -> None:
    begin(tmp_path, settings(replace(BUDGET, side_by_side=False)))
    judge = ScriptedJudge(act)
    state, step = tuned(tmp_path, judge)
    assert not any("side-by-side" in job for job in judge.judged)
    assert step.sweep is not None
    assert {point.candidate for point in step.sweep.points} <= state.kernels.keys()


def test_a_point_that_wins_the_timing_and_is_wrong_gives_way_to_the_next(tmp_path: Path) -> None:
    begin(tmp_path)
    wrong = Act(0.1, INEXACT)
    state, step = tuned(tmp_path, ScriptedJudge(at_block(512, wrong)))
    assert "\nBLOCK = 256\n" in state.sources[str(step.candidate)]
    assert outcomes_of(step)[512] == "correctness: correctness.error"


def test_where_all_that_are_faster_are_wrong_the_last_of_them_is_mended(tmp_path: Path) -> None:
    begin(tmp_path)

    def wrong(candidate: Candidate) -> Act:
        return replace(act(candidate), refusal=INEXACT) if "TUNABLES" in candidate.source else act(candidate)

    script = {
        **OPEN,
        "debugger tiling 1.1": DIAGNOSIS,
        "coder.repair tiling 1.1": draft("0.55 ms", block=1024),
    }
    state = go_on(tmp_path, script, ScriptedJudge(wrong)).state
    step = state.steps_in(Stage.TILING)[0]
    assert [attempt.refusal for attempt in step.attempts] == [INEXACT, None]
    assert (step.decision, step.candidate) == (Decision.PROMOTED, step.attempts[1].candidate)
    assert replay(tmp_path).state == state


def test_a_repair_is_swept_anew(tmp_path: Path) -> None:
    """What was swept before it was another file."""
    begin(tmp_path)

    class SecondHeatDies(ScriptedJudge):
        def _evaluation(self, job):
            found = super()._evaluation(job)
            again = found.contenders and sum("side-by-side" in name for name in self.judged) > 1
            return replace(found, verdict=Rejected(DIED)) if again else found

    def first_wrong(candidate: Candidate) -> Act:
        return replace(act(candidate), refusal=INEXACT) if "(64, 128" in candidate.source else act(candidate)

    repaired = draft("6.4 / BLOCK + 0.4 ms", extra='TUNABLES = {"BLOCK": (128, 1024)}')
    script = {**OPEN, "debugger tiling 1.1": DIAGNOSIS, "coder.repair tiling 1.1": repaired}
    state = go_on(tmp_path, script, SecondHeatDies(first_wrong)).state
    step = state.steps_in(Stage.TILING)[0]
    assert set(outcomes_of(step)) == {128, 1024}
    assert "\nBLOCK = 1024\n" in state.sources[str(step.candidate)]
    assert replay(tmp_path).state == state


def test_a_point_that_does_not_run_has_no_time(tmp_path: Path) -> None:
    begin(tmp_path)
    large = Act(refusal=Refusal(Gate.BUILD, "build.compile", "out of shared memory", "make it smaller"))
    state, step = tuned(tmp_path, ScriptedJudge(at_block(512, large)))
    assert outcomes_of(step)[512] == "out of shared memory"
    assert "\nBLOCK = 256\n" in state.sources[str(step.candidate)]


def test_a_file_that_does_not_run_is_judged_to_learn_why(tmp_path: Path) -> None:
    begin(tmp_path)
    script = {
        **OPEN,
        "coder.optimize tiling 1": draft("refuse build", block=256),
        "debugger tiling 1.1": DIAGNOSIS,
        "coder.repair tiling 1.1": draft("0.6 ms", block=512),
    }
    step = go_on(tmp_path, script).state.steps_in(Stage.TILING)[0]
    assert [attempt.signature for attempt in step.attempts] == ["build: build.wrong", ""]
    assert step.decision is Decision.PROMOTED


def test_where_a_timing_fails_the_points_are_judged_one_by_one(tmp_path: Path) -> None:
    begin(tmp_path)

    class NoHeats(ScriptedJudge):
        def _evaluation(self, job):
            found = super()._evaluation(job)
            return replace(found, verdict=Rejected(DIED)) if found.contenders else found

    state, step = tuned(tmp_path, NoHeats(act))
    assert step.sweep is not None
    assert "\nBLOCK = 512\n" in state.sources[step.sweep.winner]
    assert {point.candidate for point in step.sweep.points} <= state.kernels.keys()


def test_points_of_one_sweep_do_not_take_every_place_in_the_regrade(tmp_path: Path) -> None:
    begin(tmp_path)

    class Strict(ScriptedJudge):
        def _evaluation(self, job):
            swept = "TUNABLES" in job.question.candidate.source
            if swept and job.id.endswith(".full"):
                refusing = ScriptedJudge(lambda c: act(replace(c, source=draft("refuse sanitizer").source)))
                ((_, refused),) = refusing.judge([job])
                return refused
            return super()._evaluation(job)

    state = go_on(tmp_path, OPEN, Strict(act)).state
    assert state.closed is not None
    assert (state.closed.verdict, state.closed.candidate) == ("faster", state.steps[0].candidate)


def test_a_cap_within_a_sweep_keeps_what_was_swept(tmp_path: Path) -> None:
    values = ", ".join(str(2**n) for n in range(5, 10))
    extra = (
        f'WARPS = 4\nDEPTH = 2\nTUNABLES = {{"BLOCK": ({values}), "WARPS": (1, 2, 4, 8), "DEPTH": (1, 2, 3)}}'
    )
    begin(tmp_path, settings(replace(BUDGET, sweep_points=20), Caps(minutes=2.5 / 60)))
    script = {
        **PASSING,
        "coder.seed seed 1": draft("0.9 ms"),
        "tuner tiling 1": plan(Category.TILE_SHAPE),
        "coder.optimize tiling 1": draft("25.6 / BLOCK + 0.5 ms", extra=extra),
    }
    state = go_on(tmp_path, script).state
    step = state.steps_in(Stage.TILING)[0]
    assert step.sweep is not None
    assert 1 < len(step.sweep.points) < 20
    assert step.candidate == step.sweep.winner
    assert state.closed is not None
    assert "minutes" in state.closed.stopped
    assert replay(tmp_path).state == state
