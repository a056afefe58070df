"""Elements that forward leaves alone in an input that it writes to: they keep every bit.

A call that writes one row of a cache must leave the others bit by bit: what grows there by a rounding at each
step is another cache after a hundred.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.reference.case import Case
from egg.evaluator.trial.refused import Refused


def check(case: Case, path: str, got: Any, expected: Any, golden: Any) -> None:
    """``path`` names the input; refuse it where other elements were changed as well than those that the
    reference changes, its exact run included."""
    number = int(path.rpartition(" ")[2])
    drawn = case.tensors[number]
    alone = _equal(expected, drawn) & _equal(golden, drawn)
    changed = int((alone & ~_equal(got, drawn)).sum())
    if changed:
        raise Refused(
            "correctness.inputs",
            f"{case.label}: {changed} elements of input {number} changed, which the reference leaves alone",
            "write to the elements that forward writes to, and to no others: they are the caller's",
        )


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """In fp64, which holds every number of fewer bits; 8 bits have no comparison of their own."""
    floats = one.is_floating_point() and other.is_floating_point()
    return one.double() == other.double() if floats else one == other
