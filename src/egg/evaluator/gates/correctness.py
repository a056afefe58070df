"""Correctness: secret seeds on the timed shapes, other distributions, re-randomised weights.

Then, beside the task's own distribution, what its generator never makes
(:mod:`~egg.evaluator.gates.beyond`, :mod:`~egg.evaluator.gates.unusual`). Every question is
drawn after the candidate was loaded, so nothing about it could be known.
"""

from __future__ import annotations

from typing import Any

from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates import beyond, unusual
from egg.evaluator.process.child import Fault
from egg.evaluator.reference import Case, finite_share


def run(exam: Exam) -> dict[str, Any]:
    skipped: list[str] = []
    exam.restore_weights()
    for index in range(exam.care.seeds):
        examine(exam, exam.reference.case(f"seed {index + 1}"))
    for index, name in enumerate(exam.care.distributions):
        if index < exam.care.reweighed:
            exam.reweigh()
        if not _examined(exam, name):
            skipped.append(name)
    exam.restore_weights()
    found = {
        "without_answer": skipped,
        "unvaried": beyond.redrawn(exam, examine),
        "unusual": unusual.run(exam),
        "not_numbers": beyond.not_numbers(exam),
    }
    if exam.reference.moving:
        exam.restore_weights()  # an infinity must not stay in running statistics
    return {"checks": exam.worst.checks, **found}


def _examined(exam: Exam, distribution: str) -> bool:
    """Put a question of another distribution, if it has an answer; it is gone before the next is drawn."""
    case = exam.reference.case(f"{distribution} inputs, other weights", distribution)
    if meaningful(exam, case.outputs):
        examine(exam, case)
        return True
    return False


def examine(exam: Exam, case: Case, **options: Any) -> None:
    """Put one question, and check everything about the answer."""
    exam.place(case)
    reply = exam.ask(case, traced=True, **options)
    try:
        exam.check(case, reply)
    except Refused as wrong:
        raise _remembered(exam, case, wrong) from None
    exam.check_inputs_unchanged(case)
    exam.check_apart(case, reply)


def _remembered(exam: Exam, case: Case, wrong: Refused) -> Refused:
    """Tell a wrong answer from a stale one: a new instance that gets it right had nothing to remember."""
    try:
        exam.fresh()
        exam.place(case)
        exam.check(case, exam.ask(case, traced=True))
    except (Refused, Fault):
        return wrong
    return Refused(
        "state.stale",
        f"a new instance answers rightly, one that was called before does not: {wrong.evidence}",
        "compute from the inputs' and the weights' values on every call; a packed weight is to be keyed on "
        "its `_version`, and nothing derived from inputs may be kept",
    )


def meaningful(exam: Exam, outputs: list[tuple[str, Any]]) -> bool:
    """Whether the reference has an answer to speak of: half as much of it finite as for its own inputs."""
    return 2 * finite_share(outputs) >= exam.reference.finite_share
