"""What the programs that ran wrote of each output, where an interpreter does not bear all of them."""

from __future__ import annotations

import torch

from egg.evaluator.compare import copies
from egg.evaluator.compare.compare import compare
from egg.evaluator.reference.case import Case
from egg.evaluator.trial.trial import Trial

MOST_COMPARED, MANY = 2_000_000, 100_000
"""Elements that are compared first."""


def anything(trial: Trial) -> bool:
    """Whether the programs that ran stored any element of an output."""
    masks = [mask for mask in trial.buffers.outputs(1) if mask is not None]
    return not masks or any(bool((mask == 1).any()) for mask in masks)


def right(trial: Trial, case: Case, position: int) -> bool:
    """Whether what was written of one output is right, seen among as many of the reference's own values.

    A comparison of the whole takes far longer; it is made only where this one finds fault. What is only moved
    differs nowhere.
    """
    got, mask, expected = (
        trial.buffers.outputs(0)[position],
        trial.buffers.outputs(1)[position],
        case.outputs[position][1],
    )
    if got is None or mask is None:
        return True
    written = (mask == 1).reshape(-1).nonzero().reshape(-1)
    if len(written) > MOST_COMPARED:
        written = written[torch.randint(len(written), (MOST_COMPARED,))]
    others = torch.randint(expected.numel(), (max(len(written), MANY),))
    wide = case.golden[position][1].reshape(-1)
    flat, known = got.reshape(-1), expected.reshape(-1)
    beside = known[others]
    error = compare(
        torch.cat((flat[written], beside)),
        torch.cat((known[written], beside)),
        torch.cat((wide[written], wide[others])),
        trial.policy.precision,
        banded=trial.checks.by_size(case, expected),
    )
    trial.checks.worst.checks += 1
    trial.checks.worst.take(error)
    if error.passed and error.max_ratio and trial.checks.copied(case, position, expected):
        return not copies.compare((flat[written], known[written], wide[written]))
    return error.passed


def hold(trial: Trial, case: Case) -> None:
    """Every value that was written; the reference's own stand in where no program ran."""
    trial.checks.hold(case, _filled(trial, case))


def _filled(trial: Trial, case: Case) -> list[torch.Tensor | None]:
    filled: list[torch.Tensor | None] = []
    for got, mask, (_, expected) in zip(
        trial.buffers.outputs(0), trial.buffers.outputs(1), case.outputs, strict=True
    ):
        if got is None or mask is None:
            filled.append(None)
        else:
            filled.append(torch.where(mask == 1, got, expected))
    return filled
