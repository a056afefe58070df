"""The orchestrator's own look at an answer: an acceptance without its gates and checks is not believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from egg.core.errors import MachineError
from egg.core.evaluation import Accepted, Evaluation, Gate
from egg.core.policy import Level, Policy
from egg.core.source import Candidate
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.answers import check_answer
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question
from tests.engine.scripts import TASK, kernel

QUESTION = Question(TASK, Candidate(kernel("1 ms")), Policy(level=Level.QUICK))


def answer() -> Evaluation:
    ((_, evaluation),) = ScriptedJudge(lambda candidate: Act(1.0)).judge([Job("a", QUESTION)])
    return evaluation


def unchecked(evaluation: Evaluation) -> Evaluation:
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    return replace(evaluation, verdict=replace(verdict, correctness=replace(verdict.correctness, checks=0)))


def test_a_whole_answer_is_believed() -> None:
    check_answer(QUESTION, answer())


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (unchecked, "without a single check"),
        (lambda e: replace(e, gates=()), "without having passed static, build"),
        (
            lambda e: replace(e, gates=tuple(replace(r, passed=r.gate is not Gate.STATE) for r in e.gates)),
            "state",
        ),
        (lambda e: replace(e, candidate_hash="0" * 16), "another kernel"),
        (lambda e: replace(e, task_hash="0" * 16), "another task"),
        (lambda e: replace(e, candidate_sha256=e.candidate_hash + "0" * 48), "another kernel"),
        (lambda e: replace(e, candidate_sha256=""), "another kernel"),
        (lambda e: replace(e, task_sha256=e.task_hash + "0" * 48), "another task"),
        (lambda e: replace(e, policy=Policy(level=Level.FULL)), "another policy"),
    ],
)
def test_a_forged_one_is_not(forge: Callable[[Evaluation], Evaluation], why: str) -> None:
    with pytest.raises(MachineError, match=f"cannot be right: .*{why}"):
        check_answer(QUESTION, forge(answer()))


def test_who_asked_to_stop_before_the_checks_gets_none() -> None:
    asked = replace(QUESTION, skip=(Gate.PROVENANCE, Gate.CORRECTNESS, Gate.STATE))
    kept = tuple(r for r in answer().gates if r.gate not in asked.skip)
    check_answer(asked, replace(unchecked(answer()), gates=kept))
