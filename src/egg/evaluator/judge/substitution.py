"""A plan in place of the author's file: recorded first, then judged as any other kernel file.

The plan that a GPU's judge records is judged there and in the interpreter: one text, through every gate.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from egg.core.evaluation import Evaluation, Gate, GateRecord, Machine, PlanAnswer, RecordedPlan, Rejected
from egg.core.policy import Host
from egg.core.source import Candidate
from egg.evaluator.judge.question import PlanRequest, Question

OnGate = Callable[[Gate], None]


class Asked(Protocol):
    """The oracle's handle, as far as it is used here."""

    device: str

    def plan(self, request: PlanRequest, timeout: float) -> PlanAnswer: ...
    def judge(self, question: Question, on_gate: OnGate, timeout: float) -> Evaluation: ...


def in_place_of_the_author(oracle: Asked, question: Question, on_gate: OnGate, timeout: float) -> Evaluation:
    """The verdict on the plan of a question's candidate, under the candidate's name, with the plan in it."""
    on_gate(Gate.PLAN)
    request = PlanRequest(question.task, question.candidate, question.policy.precision, question.target)
    answer = oracle.plan(request, timeout)
    if answer.plan is None:
        return _refused(oracle, question, answer)
    plan = Candidate(answer.plan.source, f"{question.candidate.name}.plan")
    own = replace(question, candidate=plan, policy=replace(question.policy, host=Host.AUTHOR), plan=True)
    found = oracle.judge(own, on_gate, timeout)
    record = GateRecord(Gate.PLAN, True, answer.seconds, _notes(answer.plan))
    return replace(
        found,
        **question.identity,
        gates=(record, *found.gates),
        warnings=(*found.warnings, *map(_branch, answer.plan.branches)),
        seconds=round(found.seconds + answer.seconds, 3),
        recorded=answer.plan,
    )


def _refused(oracle: Asked, question: Question, answer: PlanAnswer) -> Evaluation:
    import torch
    import triton

    assert answer.refusal is not None
    device = oracle.device.partition(":")[0]
    return Evaluation(
        **question.identity,
        machine=Machine(device, "", platform.python_version(), torch.__version__, triton.__version__),
        verdict=Rejected(answer.refusal),
        gates=(GateRecord(Gate.PLAN, False, answer.seconds),),
        seconds=round(answer.seconds, 3),
    )


def _branch(what: str) -> str:
    return f"{what}: if it takes another way there, only what domain.own_size says was run was asked of it"


def _notes(plan: RecordedPlan) -> dict[str, object]:
    return {
        "signatures": len(plan.signatures), "launches": plan.launches, "operators": plan.operators,
        "buffers": plan.buffers, "sha256": plan.sha256,
    }  # fmt: skip
