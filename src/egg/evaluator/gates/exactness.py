"""What a call leaves in buffers, beside what the same call leaves in fp64.

A buffer that moves has room for a thousandth of its move, element by element. All its elements together
have less: they are as near to the exact ones as rounding leaves them, and what is left alone keeps its bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from egg.evaluator.gates.moved import another_order, exact_enough, parts, scale_of
from egg.evaluator.reference.reference import Reference
from egg.evaluator.trial.refused import Refused

State = dict[str, torch.Tensor]

FEW = 16
"""Elements of a buffer whose exactness says nothing."""
MANY_BITS = (torch.float32, torch.float64)
HINT = (
    "buffers are the task's: compute each element from what Model.forward computes it from, leave the others "
    "as they are, and keep nothing else in them, in their last bits neither"
)


def check_alone(name: str, before: State, theirs: State, ours: State, exact: State) -> None:
    """Refuse what was changed where forward leaves a buffer alone.

    A running value that rounds to what it was moves in fp64, so that must leave it as well. A zero that lost
    its sign was rewritten as a sum with zero.
    """
    if name not in exact:
        return
    old, got, own = (parts(state[name]) for state in (before, theirs, ours))
    alone = same(own, old) & (exact[name] == old.double())
    changed = alone & ~same(got, old) & ~((old == 0.0) & old.signbit() & (got == 0.0))
    if changed.any():
        raise Refused(
            "state.buffers",
            f"{name} was changed in {int(changed.sum())} elements that Model's forward leaves alone "
            f"({first(changed, got, old)})",
            HINT,
        )


def inexact_beside(
    reference: Reference, name: str, theirs: State, ours: State, exact: Mapping[str, torch.Tensor]
) -> bool:
    """Whether a moving buffer is further from the exact one than rounding explains.

    Not one of few elements, which may all be what is left of a sum that cancels, nor means of a norm, which
    are small beside what they are the means of; nor behind types of few bits, where a rounding is as much.
    """
    if name not in exact or name not in reference.moving or scale_of(name, ours) is not None:
        return False
    own, got = parts(ours[name]), parts(theirs[name])
    held = (*reference.sample.tensors, *reference.module.parameters(), own)
    if ours[name].numel() < FEW or any(t.is_floating_point() and t.dtype not in MANY_BITS for t in held):
        return False
    return not exact_enough(got, own, exact[name], another_order(reference, own.dtype))


def same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Elements of the same bits; there is nothing to say of those that are no numbers."""
    return ((one == other) & (one.signbit() == other.signbit())) | one.isnan() | other.isnan()


def first(marks: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> str:
    at = int(marks.flatten().nonzero()[0])
    return f"element {at} is {float(one.flatten()[at]):.9g} and not {float(other.flatten()[at]):.9g}"
