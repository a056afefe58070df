"""Buffers that the reference's forward moves: how near to its own the candidate's must arrive."""

from __future__ import annotations

import torch

from egg.evaluator.reference.answers import same_values

COUNTER = "num_batches_tracked"
"""Only read by a norm whose momentum is ``None``; then the statistics are other ones too."""
MOVE, SIZE, SIZE_OF_HALF = 1e-3, 1e-5, {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""What may be off: of the largest move, and of the largest element."""
OWN_ERRORS = 4.0
"""How many times the reference's own error a buffer may be off by."""


def arrived(
    theirs: torch.Tensor, ours: torch.Tensor, before: torch.Tensor, *, own_error: float = 0.0
) -> bool:
    """Whether every element is where the reference leaves it: off by a thousandth of the largest move at
    most, by the rounding of the largest element, and by some of the reference's own errors.

    What the reference leaves infinite or NaN must be that, and allows the finite elements nothing.
    """
    if not ours.is_floating_point() or not ours.numel():
        return same_values(theirs, ours)
    wide, own, old = theirs.double(), ours.double(), before.double()
    move, size = (float(t.nan_to_num(0.0, 0.0, 0.0).abs().max()) for t in (own - old, own))
    allowed = MOVE * move + SIZE_OF_HALF.get(ours.dtype, SIZE) * size + OWN_ERRORS * own_error
    near = own.isfinite() & ((wide - own).abs() <= allowed)
    return bool((near | (wide == own) | (wide.isnan() & own.isnan())).all())
