"""Answers that equal the exact run's instead of the reference's, and those for which there is no number."""

from __future__ import annotations

import math

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare import sums
from egg.evaluator.compare.compare import compare


def judged(candidate: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor, *crossed: torch.Tensor):
    return compare(candidate, reference, exact, Precision.MATCH, crossed=crossed)


def test_an_exact_run_that_answers_something_else_explains_no_integer() -> None:
    x = torch.linspace(-200.0, 200.0, 4096)
    reference = torch.isinf(torch.exp(x)).int()
    exact = torch.isinf(torch.exp(x.double())).int()
    assert judged(reference, reference, exact).passed
    assert not judged(exact, reference, exact, exact, exact).passed


def test_integers_that_a_rounding_crosses_may_be_the_exact_runs() -> None:
    exact = torch.arange(4096)
    reference = exact.clone()
    reference[::20] += 7
    assert judged(exact, reference, exact, reference).passed
    assert not judged(exact, reference, exact).passed


def test_bytes_of_a_truth_value_are_zero_or_one() -> None:
    right = torch.tensor([True, False, True])
    wrong = torch.tensor([2, 0, 1], dtype=torch.uint8).view(torch.bool)
    assert torch.equal(wrong, right)
    assert judged(right, right, right).passed
    assert "neither 0 nor 1" in judged(wrong, right, right).problem


@pytest.mark.parametrize(
    ("value", "agrees"),
    [(math.inf, True), (math.nan, True), (65504.0, True), (-1.0, False), (-65504.0, False)],
)
def test_what_stands_for_an_overflow(value: float, agrees: bool) -> None:
    reference = torch.ones(64, dtype=torch.float16)
    exact, candidate = reference.double(), reference.clone()
    reference[5], exact[5], candidate[5] = math.inf, 1e6, value
    assert (sums.norms([candidate, reference, exact], 1.0).nonfinite == 0) is agrees


@pytest.mark.parametrize(
    ("value", "agrees"), [(300.0, True), (math.inf, True), (299.0, True), (100.0, False)]
)
def test_what_stands_for_a_number_that_the_reference_overflows_on_the_way_to(
    value: float, agrees: bool
) -> None:
    reference = torch.ones(64, dtype=torch.float16)
    exact, candidate = reference.double(), reference.clone()
    reference[5], exact[5], candidate[5] = math.inf, 300.0, value
    assert (sums.norms([candidate, reference, exact], 1.0).nonfinite == 0) is agrees


def test_complex_numbers_of_double_precision_are_held_to_it() -> None:
    exact = torch.randn(256, dtype=torch.complex128)
    single = exact.to(torch.complex64)
    assert not judged(single.to(torch.complex128), exact, exact).passed
    assert judged(single, single, exact).passed
