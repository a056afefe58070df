"""What the programs that ran wrote of each output, where an interpreter does not bear all of them.

Errors are counted among these elements alone, by all rules (:class:`~egg.evaluator.compare.part.Part`).
"""

from __future__ import annotations

import torch

from egg.evaluator.compare.part import Part
from egg.evaluator.reference.case import Case
from egg.evaluator.trial.trial import Trial

MOST_COMPARED = 2_000_000
"""Elements of an output."""


def anything(trial: Trial) -> bool:
    """Whether the programs that ran stored any element of an output."""
    masks = [mask for mask in trial.buffers.outputs(1) if mask is not None]
    return not masks or any(bool((mask == 1).any()) for mask in masks)


def check(trial: Trial, case: Case) -> None:
    """Every value that was written, or many by lot."""
    masks = trial.buffers.outputs(1)
    parts = {
        position: part
        for position, mask in enumerate(masks)
        if mask is not None and (part := Part.marked(mask == 1, MOST_COMPARED)) is not None
    }
    trial.checks.agreed(
        case, lambda answered: trial.checks.hold(answered, _filled(trial, answered), parts=parts)
    )


def gaps(trial: Trial) -> bool:
    """Whether some element lies between two that were stored and was not stored itself.

    Another program may store it, one that did not run. So may none: a mask that follows from data leaves out
    what the reference's own value is put in for.
    """
    for mask in trial.buffers.outputs(1):
        if mask is not None and mask.numel() > 2:
            stored = mask.reshape(-1) == 1
            if bool((stored[:-2] & ~stored[1:-1] & stored[2:]).any()):
                return True
    return False


def _filled(trial: Trial, case: Case) -> list[torch.Tensor | None]:
    """The outputs of which anything is there, with the reference's own values where no program ran."""
    filled: list[torch.Tensor | None] = []
    for got, mask, (_, expected) in zip(
        trial.buffers.outputs(0), trial.buffers.outputs(1), case.outputs, strict=True
    ):
        if got is None or mask is None or not bool((mask == 1).any()):
            filled.append(None)
        else:
            filled.append(torch.where(mask == 1, got, expected))
    return filled
