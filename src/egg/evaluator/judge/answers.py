"""What the orchestrator holds an oracle's answer against before it believes it.

The oracle runs the task's code. Should a task have got hold of it all the same, these are the marks that an
answer must bear: it is on what was asked, every gate that has to be passed was, and an acceptance rests on
outputs that were compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from egg.core.errors import MachineError
from egg.core.evaluation import Accepted, Evaluation, Gate, PlanAnswer
from egg.core.policy import Host
from egg.core.recording import Recording
from egg.core.source import Candidate
from egg.evaluator.judge.question import Question

NEEDED = (Gate.STATIC, Gate.BUILD, Gate.PROVENANCE, Gate.CORRECTNESS, Gate.STATE)
"""Gates that every acceptance has passed, with and without a GPU."""
TERMS = {
    "task_hash": "task",
    "candidate_hash": "kernel",
    "task_sha256": "task",
    "candidate_sha256": "kernel",
    "policy": "policy",
    "settings": "set of settings",
}
"""Fields that must be those of the question, and what they are called in an error."""


@dataclass(frozen=True)
class Mismatch:
    """Something that an evaluation is on, and that was not asked."""

    what: str
    asked: Any
    found: Any


def mismatch(question: Question, evaluation: Evaluation) -> Mismatch | None:
    """The first thing in which an evaluation does not answer ``question``; ``None`` where it does."""
    identity = question.identity
    for name, what in TERMS.items():
        asked, found = identity[name], getattr(evaluation, name)
        if asked != found:
            return Mismatch(what, asked, found or "one that an earlier version named by 16 digits")
    return None


def check_answer(question: Question, evaluation: Evaluation) -> None:
    """Raises where ``evaluation`` cannot be the judge's answer to ``question``."""
    other = mismatch(question, evaluation)
    if other is not None:
        raise _unbelievable(f"it is for another {other.what}")
    if isinstance(evaluation.verdict, Accepted) and not question.contenders:
        lacks = unsupported(evaluation, question.skip)
        if lacks:
            raise _unbelievable(lacks)


def unsupported(evaluation: Evaluation, skip: tuple[Gate, ...] = ()) -> str:
    """Why an acceptance is not supported by its own record; empty where it is."""
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted):
        return ""
    passed = {record.gate for record in evaluation.gates if record.passed}
    missing = [gate.value for gate in NEEDED if gate not in passed and gate not in skip]
    if missing:
        return f"it accepts without having passed {', '.join(missing)}"
    if evaluation.policy.host is Host.RECORDED and (evaluation.recorded is None or Gate.PLAN not in passed):
        return "it accepts a recorded plan that it does not hold"
    failed = [record.gate.value for record in evaluation.gates if not record.passed]
    if failed:
        return f"it accepts what failed at {', '.join(failed)}"
    if verdict.correctness.checks < 1 and Gate.CORRECTNESS not in skip:
        return "it accepts without a single check"
    return ""


def check_recording(recording: Recording) -> None:
    """Raises where a recording does not have the form of one: it is text that others read."""
    graph = recording.graph
    texts = [recording.reason, *(launch.name for launch in recording.timeline)]
    numbers: list[object] = [launch.milliseconds for launch in recording.timeline]
    if graph is not None:
        texts += [graph.text, *graph.arguments, *graph.launches, *graph.folded]
        for choice in graph.launches.values():
            numbers += [choice.num_warps, choice.num_stages, *choice.constants.values()]
        for constant in graph.folded.values():
            texts += [constant.dtype, constant.numbers]
            numbers += constant.shape
    if not all(isinstance(text, str) for text in texts):
        raise _unbelievable("a name in it is no text")
    if not all(isinstance(number, int | float) and 0 <= number < 1e9 for number in numbers):
        raise _unbelievable("a number in it is none")


def check_plan(answer: PlanAnswer) -> None:
    """Raises where a plan's names are not those of its text."""
    plan = answer.plan
    if plan is None:
        return
    file = Candidate(plan.source)
    if (plan.hash, plan.sha256) != (file.hash, file.sha256):
        raise _unbelievable("the plan's text is not the one that it names")


def unreadable(error: Exception) -> MachineError:
    """For an answer that has not the form of one."""
    return _unbelievable(f"it cannot be read ({type(error).__name__}: {error})")


def unconfirmed(seconds: float) -> MachineError:
    """For an answer that the judge does not confirm."""
    return _unbelievable(f"it was not confirmed within {seconds:g} s")


def _unbelievable(why: str) -> MachineError:
    return MachineError(
        f"the judge's answer cannot be right: {why}",
        "the task's code may have changed the judge: read the task file; if it is sound, please report it",
    )
