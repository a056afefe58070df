"""Deferred checks: answers given under the clock, kept, and checked when the GPU is shared again.

Checking one takes an fp64 run of the reference, which may last a hundred times as long as the
call did. What is kept is a copy, made before the candidate gets another request: it can
no longer change what it delivered, and does not learn what was copied. Where copies would
take too much memory the answer is checked at once, as it is where it follows from the module's state now.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reserve import apart
from egg.evaluator.tensors import memory
from egg.evaluator.trial.trial import Notes, Trial

DEFERRED_BYTES = 2 << 30
"""What all copies together may take."""


def put(trial: Trial, case: Case, index: int, label: str) -> None:
    """See that what lies in output set ``index`` is the answer to ``case`` as its inputs are now."""
    size = sum(_bytes(t) for t in (*case.tensors, *trial.buffers.outputs(index)) if t is not None)
    held = sum(
        _bytes(t) for kept, answer in trial.deferred for t in (*kept.tensors, *answer) if t is not None
    )
    free = memory.free_bytes(trial.device)
    short = held + size > DEFERRED_BYTES or (free is not None and free < trial.buffers.ample_bytes + size)
    if short or trial.follows:
        trial.checks.check_values(
            trial.reference.answer(label, case.inputs, own=False, seed=case.seed),
            trial.buffers.outputs(index),
        )
        return
    inputs = apart(case.inputs)
    trial.deferred.append((replace(case, label=label, inputs=inputs), trial.buffers.snapshot(index)))


def settle(trial: Trial) -> Notes:
    """Check every deferred answer; each copy is gone before the next is looked at.

    Nothing is asked of this process any more; where memory is short, what it holds is needed for the answers.
    """
    count = len(trial.deferred)
    if count and not trial.buffers.roomy():
        trial.connection.process.end()
    while trial.deferred:
        trial.sharing.give_way()
        case, delivered = trial.deferred.pop()
        trial.checks.check_values(
            trial.reference.answer(case.label, case.inputs, own=False, seed=case.seed), delivered
        )
    return {"checked": count}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
