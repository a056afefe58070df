"""Results carried back from another machine: held against the run, and signed where a key is set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.carried import check_carried, read_results
from egg.core.errors import UsageError
from egg.core.evaluation import Accepted, Compiled, Evaluation, Gate, Interval, Measured
from egg.core.facts import ProgramFacts
from egg.core.policy import Level, Policy
from egg.core.source import Candidate
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.judge.question import Question
from egg.evaluator.judge.signing import key_from
from tests.engine.scripts import FACTS, TASK, kernel

JOB = Job("run/1", Question(TASK, Candidate(kernel("1 ms")), Policy(level=Level.FULL), "H200"))
BYTES = 2_400_000_000
"""Half a millisecond on the target."""
KNOWN = replace(FACTS, program=ProgramFacts(1e9, BYTES, (), ("aten.mul [1]",)))


def judged() -> Evaluation:
    ((_, evaluation),) = ScriptedJudge(lambda candidate: Act(1.0)).judge([JOB])
    return evaluation


def timed(evaluation: Evaluation, milliseconds: float) -> Evaluation:
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    assert isinstance(verdict.performance, Measured)
    performance = replace(verdict.performance, milliseconds=Interval(*[milliseconds] * 3))
    return replace(evaluation, verdict=replace(verdict, performance=performance))


def on(gpu: str) -> Callable[[Evaluation], Evaluation]:
    def change(evaluation: Evaluation) -> Evaluation:
        verdict = evaluation.verdict
        assert isinstance(verdict, Accepted)
        measured = replace(verdict, performance=replace(verdict.performance, gpu=gpu))
        return replace(evaluation, machine=replace(evaluation.machine, gpu=gpu), verdict=measured)

    return change


def without_gpu(evaluation: Evaluation) -> Evaluation:
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    compiled = replace(verdict, performance=Compiled("H200", (), 0.1, "full"))
    return replace(evaluation, machine=replace(evaluation.machine, device="cpu", gpu=""), verdict=compiled)


def lacking(gate: Gate) -> Callable[[Evaluation], Evaluation]:
    return lambda e: replace(e, gates=tuple(record for record in e.gates if record.gate is not gate))


def test_a_whole_result_is_taken() -> None:
    check_carried(JOB, judged(), KNOWN)


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (without_gpu, "judged without a GPU, and the run is for H200"),
        (on("Toaster 9000"), "judged on 'Toaster 9000'"),
        (on("NVIDIA A100-SXM4-80GB"), "and the run is for H200"),
        (lambda e: replace(e, machine=replace(e.machine, gpu="NVIDIA H100 80GB HBM3")), "judged on"),
        (lambda e: replace(e, gates=()), "names no gate"),
        (lacking(Gate.CORRECTNESS), "without having passed correctness"),
        (lacking(Gate.REGRADE), "at level full without having passed regrade"),
        (lambda e: timed(e, 1e-9), "shorter than any launch"),
        (lambda e: timed(e, 0.3), "below the floor of 0.5 ms"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    forge: Callable[[Evaluation], Evaluation], why: str
) -> None:
    with pytest.raises(UsageError, match="the result of job run/1 is refused") as caught:
        check_carried(JOB, forge(judged()), KNOWN)
    assert why in caught.value.message


def test_a_signed_result_of_a_job_with_weaker_settings_is_for_other_settings(tmp_path: Path) -> None:
    weaker = replace(JOB.question, settings=replace(JOB.question.level_settings, seeds=0, unusual=()))
    ((_, evaluation),) = ScriptedJudge(lambda candidate: Act(1.0)).judge([Job(JOB.id, weaker)])
    path, key = tmp_path / "results.jsonl", key_from({"EGG_RESULTS_KEY": "a long random text"})
    path.write_text(Answer(JOB.id, evaluation).to_line(key) + "\n")
    carried = read_results(path, key).verdicts[JOB.id]
    check_carried(Job(JOB.id, weaker), carried, KNOWN)
    with pytest.raises(UsageError, match="for another set of settings") as caught:
        check_carried(JOB, carried, KNOWN)
    assert "'seeds': 0" in caught.value.message


def test_who_need_not_read_everything_may_be_below_the_floor() -> None:
    gathered = replace(FACTS, program=ProgramFacts(1e9, BYTES, (), ("aten.embedding [1]",)))
    check_carried(JOB, timed(judged(), 0.3), gathered)


def test_with_a_key_only_what_is_signed_with_it_is_believed(tmp_path: Path) -> None:
    path, answer = tmp_path / "results.jsonl", Answer(JOB.id, judged())
    key = key_from({"EGG_RESULTS_KEY": "a long random text"})
    path.write_text(answer.to_line(key) + "\n")
    assert read_results(path, key).unsigned == {}
    assert read_results(path).unsigned == {}
    assert read_results(path, b"another").unsigned == {JOB.id: "its signature is not right"}
    row = json.loads(answer.to_line(key))
    row["evaluation"]["verdict"]["performance"]["milliseconds"]["low"] *= 0.5
    path.write_text(json.dumps(row) + "\n")
    assert read_results(path, key).unsigned == {JOB.id: "its signature is not right"}
    path.write_text(answer.to_line() + "\n")
    assert read_results(path, key).unsigned == {JOB.id: "it is not signed"}
    with pytest.raises(UsageError, match="is refused: it is not signed"):
        check_carried(JOB, judged(), KNOWN, "it is not signed")


def test_the_key_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    assert key_from({"EGG_RESULTS_KEY_FILE": str(tmp_path / "key")}) == b"secret"
    assert key_from({}) is None
    (tmp_path / "key").write_text("\n")
    for path in ("key", "missing"):
        with pytest.raises(UsageError, match="EGG_RESULTS_KEY_FILE"):
            key_from({"EGG_RESULTS_KEY_FILE": str(tmp_path / path)})
