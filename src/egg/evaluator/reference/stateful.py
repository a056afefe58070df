"""Whether answers follow from what earlier calls left in the module: a count of steps, an average."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import outputs_of
from egg.evaluator.tensors.reals import scaled

CALLS = 3
"""Of the reference, behind which the same inputs may have another answer."""


def is_stateful(reference: Reference) -> bool:
    """Whether the same inputs have another answer behind some calls, or where a buffer that calls move holds
    other numbers."""
    if not reference.moving and not reference.leaves:
        return False
    inputs = reference.draw()
    with reference.spared():
        before = _answer(reference, inputs)
    try:
        with reference.spared():
            for _ in range(CALLS):
                reference.run(reference.draw(), secrets.randbits(31))
            behind = _answer(reference, inputs)
        with reference.spared():
            _put_elsewhere(reference)
            elsewhere = _answer(reference, inputs)
    except TaskError:  # from such a state there is none
        return True
    return not (_same(before, behind) and _same(before, elsewhere))


def _answer(reference: Reference, inputs: list[Any]) -> list[Any]:
    """Apart from the module's own memory."""
    leaves = (leaf for _, leaf in outputs_of(reference.run(inputs)))
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


@torch.no_grad()
def _put_elsewhere(reference: Reference) -> None:
    """What no few calls show: an average that an answer takes up later."""
    held = reference.module.state_dict()
    for name in reference.moving:
        value = held[name]
        if value.is_floating_point() or value.is_complex():
            value.copy_(scaled(value, 0.75, 0.5))


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        same_values(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True)
    )
