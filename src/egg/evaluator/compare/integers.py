"""Answers of integers and truth values: the reference's, or those of the exact run.

Where they are rounded from floats, a few may be the next integer: those that become it when the exact run is
off by some roundings. How few is asked of one answer, and of all answers to an output together
(:class:`Crossed`): a share of two integers is none, so that both may be, though not in every answer.

Bare exponents (``float8_e8m0fnu``) are integers too: the next one is twice the number, and every element that
the scale stands for is off by as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import EXPONENTS

FEW, SHARE = 2, 1e-3
"""So many integers, or this part of them, may be the next one, or twice as many as the reference has others
than the exact run."""
SHARE_STRANGE = 2.0**-6
"""Of integers that are the exact run's and not the reference's, though no rounding leads from one to the
other."""


NAN_BYTE, NO_EXPONENT = 255, 1 << 12
"""What stands for NaN among exponents, and what takes its place: no neighbour of the largest."""


@dataclass(frozen=True)
class Crossed:
    """Integers beside a boundary of rounding, of one answer or of several to questions of one kind."""

    count: int = 0
    """Elements, all of them."""
    candidate: int = 0
    """Of the candidate: neither the reference's nor the exact run's, but the next one, by some roundings."""
    reference: int = 0
    """Of the reference: others than the exact run's."""

    def __add__(self, other: Crossed) -> Crossed:
        return Crossed(
            self.count + other.count,
            self.candidate + other.candidate,
            self.reference + other.reference,
        )

    @property
    def too_many(self) -> bool:
        """More than chance explains, over all answers so far."""
        return self.candidate > FEW + max(SHARE * self.count, 2.0 * self.reference)


NONE = Crossed()


def are_integers(tensor: torch.Tensor) -> bool:
    """Whether the rule for integers holds for such an output: of integers, truth values, or exponents."""
    return tensor.dtype is EXPONENTS or not (tensor.is_floating_point() or tensor.is_complex())


def exponents(tensor: torch.Tensor) -> torch.Tensor:
    """Of powers of two, or of what an exact run has in their place, as integers."""
    powers = tensor if tensor.dtype is EXPONENTS else tensor.float().to(EXPONENTS)
    found = powers.view(torch.uint8).to(torch.int16)
    return found.masked_fill_(found == NAN_BYTE, NO_EXPONENT)


def compare(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    golden: torch.Tensor,
    crossed: Sequence[torch.Tensor] = (),
) -> tuple[str, bool, Crossed]:
    """What is wrong, if anything; whether all are the reference's; and how many lie beside a boundary.

    An exact run may answer something else (``isinf`` of what only the narrow type overflows). So where many
    of its elements are others than the reference's, and no rounding makes them so, it explains none.
    ``crossed``: exact runs that are some roundings off.
    """
    if reference.dtype is EXPONENTS:
        candidate, reference, golden, *crossed = map(exponents, (candidate, reference, golden, *crossed))
    wrong = explained = own = strange = illegal = 0
    equal = True
    for c, r, g, *others in memory.pieces(candidate, reference, golden, *crossed):
        if c.dtype is torch.bool:
            illegal += int((c.view(torch.uint8) > 1).sum())
        exact = g.to(c.dtype)
        unequal = c != r
        equal &= not bool(unequal.any())
        taken = unequal & (c == exact)
        unequal &= c != exact
        own += int((r != exact).sum())
        near = (c.long() - r.long()).abs() == 1
        becomes, jumps = torch.zeros_like(unequal), torch.zeros_like(unequal)
        for other in others:
            becomes |= c == other.to(c.dtype)
            jumps |= r == other.to(c.dtype)
        strange += int((taken & ~jumps).sum())
        found = int((unequal & near & becomes).sum())
        explained += found
        wrong += int(unequal.sum()) - found
    count = candidate.numel()
    if explained > max(FEW, SHARE * count, 2 * own):
        wrong += explained
    if strange > max(FEW, SHARE_STRANGE * count):
        wrong += strange
    problem = f"{wrong} of {count} integer elements differ" if wrong else ""
    if illegal:
        problem = f"{illegal} bytes of a bool tensor are neither 0 nor 1"
    return problem, equal, Crossed(count, explained, own)
