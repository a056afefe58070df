"""Answers that were given under the clock, put aside to be checked when the GPU is no longer had alone.

Checking one takes an fp64 run of the reference, which may last a hundred times as long as the
call did. What is put aside is a copy, made before the candidate hears of anything else: it can
no longer change what it delivered, and does not learn what was copied. Where copies would
take too much memory the answer is checked at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from egg.evaluator import memory
from egg.evaluator.exam import Exam
from egg.evaluator.reference import Case
from egg.evaluator.reserve import apart

ASIDE_BYTES = 2 << 30
"""What all copies together may take."""


def put(exam: Exam, case: Case, index: int, label: str) -> None:
    """See that what lies in output set ``index`` is the answer to ``case`` as its inputs are now."""
    size = sum(_bytes(t) for t in (*case.tensors, *exam.outputs(index)) if t is not None)
    held = sum(_bytes(t) for kept, answer in exam.aside for t in (*kept.tensors, *answer) if t is not None)
    free = memory.free_bytes(exam.device)
    if held + size > ASIDE_BYTES or (free is not None and free < exam.ample_bytes + size):
        exam.check_values(
            exam.reference.answer(label, case.inputs, own=False, seed=case.seed), exam.outputs(index)
        )
        return
    inputs = apart(case.inputs)
    exam.aside.append((replace(case, label=label, inputs=inputs), exam.snapshot(index)))


def settle(exam: Exam) -> dict[str, Any]:
    """Check everything that was put aside; each copy is gone before the next is looked at.

    Nothing is asked of this process any more; where memory is short, what it holds is needed for the answers.
    """
    count = len(exam.aside)
    if count and not exam.roomy():
        exam.process.end()
    while exam.aside:
        exam.sharing.give_way()
        case, delivered = exam.aside.pop()
        exam.check_values(
            exam.reference.answer(case.label, case.inputs, own=False, seed=case.seed), delivered
        )
    return {"checked": count}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
