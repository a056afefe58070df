"""A run on a machine without a GPU: sweeps by compiling and predicting, nothing claimed about speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import advance, replay, start
from egg.core.evaluation import Accepted, Compiled, Correctness, Evaluation, Gate, Machine
from egg.core.resources import KernelResources
from egg.core.source import Candidate
from egg.core.step import Decision
from egg.engine.judges import LocalJudge
from egg.engine.scripted import Act, ScriptedJudge, ScriptedTeam
from egg.evaluator.judge.pool import Job
from tests.engine.scripts import (
    FACTS,
    PASSING,
    TASK,
    Category,
    act,
    begin,
    draft,
    plan,
    settings,
)

SWEEP = {
    **PASSING,
    "coder.seed seed 1": draft("1.0 ms", block=32),
    "tuner tiling 1": plan(Category.TILE_SHAPE, "leave the block open"),
    "coder.optimize tiling 1": draft("1.0 ms", block=64, extra='TUNABLES = {"BLOCK": (64, 128, 256)}'),
}


class CompilingJudge(ScriptedJudge):
    """A machine without a GPU: a larger block spills less; blocks in ``wrong`` give wrong answers."""

    def __init__(self, wrong: tuple[int, ...] = ()) -> None:
        super().__init__(self._verdict)
        self._wrong = wrong

    def _verdict(self, candidate: Candidate) -> Act:
        found = act(candidate)
        return replace(found, refusal=None)

    def _evaluation(self, job: Job) -> Evaluation:
        evaluation = super()._evaluation(job)
        source = job.question.candidate.source
        block = int(source.split("BLOCK = ")[1].split()[0])
        ran = Gate.CORRECTNESS not in job.question.skip
        if ran and block in self._wrong:
            refused = ScriptedJudge(lambda _: act(Candidate(source.replace("1.0 ms", "refuse correctness"))))
            (_, verdict), *_ = refused.judge([job])
            return replace(verdict, machine=Machine("cpu", "", "3.11", "2.13", "3.9"))
        spills = 4096 // block
        kernel = KernelResources("double", (4096, 1, 1), 32, spills, 0, 4, 3, 0, 128)
        performance = Compiled("H200", (kernel,), 0.1, "full")
        assert isinstance(evaluation.verdict, Accepted)
        correctness = evaluation.verdict.correctness if ran else Correctness(0, 0.0, 0.0, 0.0, 0.0, True)
        verdict = replace(evaluation.verdict, performance=performance, correctness=correctness)
        return replace(evaluation, verdict=verdict, machine=Machine("cpu", "", "3.11", "2.13", "3.9"))


def go_on(folder: Path, judge: ScriptedJudge):
    return advance(folder, lambda started, journal: ScriptedTeam(SWEEP), judge).state


def test_points_are_compiled_and_only_the_winner_is_run(tmp_path: Path) -> None:
    begin(tmp_path)
    judge = CompilingJudge()
    state = go_on(tmp_path, judge)
    step = next(step for step in state.steps if step.sweep is not None)
    assert step.sweep is not None
    assert [p.outcome for p in step.sweep.points] == ["predicted"] * 3
    winner = next(p for p in step.sweep.points if p.candidate == step.sweep.winner)
    assert winner.values == {"BLOCK": 256}
    compiled = [job for job in judge.judged if job.endswith(".compile")]
    assert len(compiled) == 2
    assert sum(step.sweep.winner in job for job in judge.judged if job.endswith(".quick")) == 1
    assert (step.decision, step.candidate) == (Decision.PROMOTED, step.sweep.winner)
    assert state.closed is not None
    assert (state.closed.verdict, state.closed.candidate) == ("unmeasured", step.sweep.winner)
    assert replay(tmp_path).state == state


def test_a_predicted_winner_that_is_wrong_gives_way_to_the_next(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, CompilingJudge(wrong=(256,)))
    step = next(step for step in state.steps if step.sweep is not None)
    assert step.sweep is not None
    outcomes = {p.values["BLOCK"]: p.outcome for p in step.sweep.points}
    assert outcomes == {64: "predicted", 128: "predicted", 256: "correctness: correctness.wrong"}
    winner = next(p for p in step.sweep.points if p.candidate == step.sweep.winner)
    assert winner.values == {"BLOCK": 128}
    assert replay(tmp_path).state == state


def test_when_every_winner_is_wrong_the_file_stays_as_it_was(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, CompilingJudge(wrong=(128, 256)))
    step = next(step for step in state.steps if step.sweep is not None)
    assert step.sweep is not None
    assert step.candidate == step.sweep.winner == step.attempts[0].candidate


def test_what_was_only_compiled_is_no_kernel(tmp_path: Path) -> None:
    begin(tmp_path)
    state = go_on(tmp_path, CompilingJudge())
    run = {job.split("/")[1].split(".")[0] for job in state.evaluations if job.endswith(".quick")}
    assert set(state.kernels) == run


@pytest.mark.timeout(240)
def test_with_the_real_judge(tmp_path: Path) -> None:
    """The whole path on this machine's CPU: a seed, a sweep, a regrade."""
    start(tmp_path, TASK, replace(settings(), device="cpu"), FACTS, name="double-cpu")
    judge = LocalJudge("cpu")
    try:
        state = advance(tmp_path, lambda started, journal: ScriptedTeam(SWEEP), judge).state
    finally:
        judge.close()
    assert state.closed is not None
    assert state.closed.verdict == "unmeasured"
    step = next(step for step in state.steps if step.sweep is not None)
    assert step.sweep is not None
    assert [p.outcome for p in step.sweep.points] == ["predicted"] * 3
    assert replay(tmp_path).state == state
