"""By which number a kernel multiplies what it carries, beside what it adds.

A kernel that doubles rows and shifts each by its sum is replaced by one that doubles: the sum may be what a
softmax does not see, but the factor is not. Where it adds the same to neighbours, their difference shows the
factor alone. Most quotients of differences must be one number: of a product with another tensor, or of a
function, they are not.
"""

from __future__ import annotations

import torch

LEAST = 16
"""Quotients that say something."""
MOST = 0.5
"""Of them that must be one number."""
NEAR, ROUNDINGS = 1e-3, 16.0
SMALL = 1e-2
"""Of the usual difference: a quotient by less is rounding."""
SEEN = 1 << 15
"""Elements that are looked at, from the first."""


def multiple(made: torch.Tensor, carried: torch.Tensor) -> float:
    """The factor between what a kernel made and what lies in its place; 1 where there is none."""
    if made.numel() != carried.numel() or not (made.is_floating_point() and carried.is_floating_point()):
        return 1.0
    ours, theirs = (t.detach().reshape(-1)[:SEEN].to(torch.float64).diff() for t in (made, carried))
    known = ours.isfinite() & theirs.isfinite()
    ours, theirs = ours[known], theirs[known]
    told = theirs.abs() > SMALL * theirs.square().mean().sqrt()
    quotients = ours[told] / theirs[told]
    if quotients.numel() < LEAST:
        return 1.0
    usual = quotients.median()
    near = (quotients - usual).abs() <= max(NEAR, ROUNDINGS * torch.finfo(made.dtype).eps) * usual.abs()
    if float(near.double().mean()) < MOST or not usual:
        return 1.0
    found = float(quotients[near].mean())
    return 1.0 if abs(found - 1.0) <= NEAR else found
