"""What the interpreter sees and a GPU does not show.

A GPU runs programs in one order, its registers happen to hold zeros, and a race nearly always ends well:
a kernel with such a fault passes on one machine and fails on the next. So a kernel that was accepted on a
GPU at levels ``full`` and ``audit`` is judged once more without one, at small sizes, where programs run in
orders drawn by lot, masked lanes hold poison and every access is recorded; there loads of what an earlier
call left are seen too.

Only faults of the program count there. Accuracy is the GPU's to say: a reference on a CPU rounds otherwise
and has no TF32. A kernel that the interpreter cannot run was run on the GPU; the record says why.
"""

from __future__ import annotations

from dataclasses import replace

from egg.core.evaluation import Evaluation, Gate, GateRecord, Refusal, Rejected
from egg.core.policy import Level
from egg.evaluator.judge.question import Question
from egg.evaluator.trial.levels import LEVELS

FAULTS = frozenset(
    [
        "correctness.configuration",
        "correctness.not_a_number",
        "correctness.order",
        "correctness.values",
        "kernel.hint",
        "kernel.out_of_bounds",
        "kernel.race",
        "kernel.undefined",
        "state.remembers",
    ]
)
"""Reasons that hold on every machine."""
BEYOND_ROUNDING = 0.25
"""A relative rms error from here on is not a matter of accuracy, whatever the reference's own rounding."""


def is_wanted(question: Question) -> bool:
    """Whether an acceptance on a GPU is to be confirmed by the interpreter."""
    return (
        question.level_settings.interpreted
        and Gate.INTERPRETER not in question.skip
        and not question.contenders
    )


def without_a_gpu(question: Question, gpu: str | None) -> Question:
    """The same question at level ``quick``, for a machine without a GPU that compiles for ``gpu``."""
    settings = replace(LEVELS[Level.QUICK], remembered=True)
    policy = replace(question.policy, level=Level.QUICK)
    return replace(question, policy=policy, target=gpu, settings=settings)


def joined(measured: Evaluation, interpreted: Evaluation, seconds: float) -> Evaluation:
    """The verdict of the GPU, unless the interpreter found a fault of the program."""
    found = interpreted.verdict
    if not isinstance(found, Rejected):
        return _with(measured, GateRecord(Gate.INTERPRETER, True, seconds, {"verdict": "accepted"}))
    refusal = found.refusal
    notes = {"verdict": refusal.reason, "evidence": refusal.evidence[:400]}
    if not _is_fault(refusal):
        return _with(measured, GateRecord(Gate.INTERPRETER, True, seconds, notes))
    evidence = f"without a GPU, in the interpreter: {refusal.evidence}"
    refused = Refusal(Gate.INTERPRETER, refusal.reason, evidence, refusal.hint, refusal.facts)
    record = GateRecord(Gate.INTERPRETER, False, seconds, notes)
    return replace(_with(measured, record), verdict=Rejected(refused))


def not_interpreted(measured: Evaluation, why: str, seconds: float) -> Evaluation:
    """The verdict of the GPU alone, with the reason why there is no other."""
    record = GateRecord(Gate.INTERPRETER, True, seconds, {"verdict": "none", "evidence": why[:400]})
    warning = f"the interpreter gave no verdict: {why[:200]}"
    return replace(_with(measured, record), warnings=(*measured.warnings, warning))


def _is_fault(refusal: Refusal) -> bool:
    error = refusal.facts.relative_error if refusal.facts is not None else None
    return refusal.reason in FAULTS or (error is not None and error >= BEYOND_ROUNDING)


def _with(measured: Evaluation, record: GateRecord) -> Evaluation:
    return replace(
        measured, gates=(*measured.gates, record), seconds=round(measured.seconds + record.seconds, 3)
    )
