"""Regrade: judged again with new questions in a new process, as a stranger would.

A process that answered in fenced memory was such a one already.
"""

from __future__ import annotations

from typing import Any

from egg.evaluator.exam import Exam
from egg.evaluator.gates.correctness import examine


def run(exam: Exam) -> dict[str, Any]:
    for _ in range(exam.care.regrades - exam.fenced):
        exam.restart()
        examine(exam, exam.reference.case("regrade, as built"))
        exam.reweigh()
        examine(exam, exam.reference.case("regrade, other weights", "normal"))
        exam.restore_weights()
    return {"processes": exam.care.regrades}
