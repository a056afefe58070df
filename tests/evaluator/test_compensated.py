"""Outputs that hold the rounding error of another one are held together with it."""

from __future__ import annotations

import torch

from egg.core.policy import Precision
from egg.evaluator.compare.compensated import partner, together

Answer = tuple[torch.Tensor, torch.Tensor]


def rounded(kind: torch.dtype = torch.bfloat16) -> tuple[Answer, Answer, Answer]:
    """An honest answer of a compensated sum, the reference's and the exact one, each with what it lost."""
    a, b = torch.randn(64, 64).to(kind), (torch.randn(64, 64) * 1e-2).to(kind)
    reference = (a + b, b + (a - (a + b)))
    exact = a.double() + b.double()
    candidate = exact.to(kind)
    rest = (exact - candidate.double()).to(kind)
    return (candidate, rest), reference, (exact, exact - exact)


def passed(one: Answer, reference: Answer, golden: Answer, sign: float = 1.0) -> bool:
    main, rest = zip(one, reference, golden, strict=True)
    return together(main, rest, sign, Precision.MATCH).passed


def test_what_rounding_takes_belongs_to_what_was_rounded():
    _, reference, golden = rounded()
    assert partner(1, reference, golden) == (0, 1.0)
    assert partner(1, (reference[0], -reference[1]), golden) == (0, -1.0)


def test_noise_belongs_to_nothing():
    _, reference, golden = rounded()
    lost = reference[1].flatten()
    elsewhere = lost[torch.randperm(lost.numel())].reshape(64, 64)
    assert partner(1, (reference[0], elsewhere), golden) is None
    assert partner(1, (reference[0], torch.zeros_like(elsewhere)), golden) is None
    few = tuple(t.flatten()[:8] for t in reference)
    assert partner(1, few, tuple(t.flatten()[:8] for t in golden)) is None


def test_the_two_are_right_together():
    honest, reference, golden = rounded()
    other = honest[0].clone()
    other[::16] = torch.nextafter(other[::16], 2 * other[::16])
    assert passed(honest, reference, golden)
    assert passed((other, (golden[0] - other.double()).to(other.dtype)), reference, golden)
    assert not passed((honest[0], torch.zeros_like(honest[1])), reference, golden)
    assert not passed((honest[0], -honest[1]), reference, golden)
    assert not passed((other, honest[1]), reference, golden)


def test_in_single_precision_too():
    honest, reference, golden = rounded(torch.float32)
    assert passed(honest, reference, golden)
    assert not passed((honest[0], torch.zeros_like(honest[1])), reference, golden)
