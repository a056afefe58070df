"""NaN in the inputs: what a candidate may have where the reference and its exact run differ."""

from __future__ import annotations

import math
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare.compare import LeafError
from egg.evaluator.gates.beyond import _elsewhere, _followed
from egg.evaluator.gates.unreached import Unreached
from egg.evaluator.trial.refused import Refused

TRIAL: Any = SimpleNamespace(policy=SimpleNamespace(precision=Precision.MATCH))


def causal(rows: int = 64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A candidate, the reference and the exact run of attention of which one late value is NaN.

    Both skip what is masked; the exact run multiplies it by zero, so that all of it is NaN.
    """
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(rows, 32, generator=generator, dtype=torch.float64)
    candidate, reference = (
        (exact * (1 + 2.0**-8 * torch.randn(exact.shape, generator=generator))).bfloat16() for _ in range(2)
    )
    for tensor in (candidate, reference):
        tensor[rows // 2 :] = math.nan
    return candidate, reference, torch.full_like(exact, math.nan)


def elsewhere(candidate: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor) -> LeafError:
    return _elsewhere(TRIAL, candidate.clone(), reference, exact, spreads=False)


def test_the_reference_stands_for_an_exact_run_without_numbers() -> None:
    error = elsewhere(*causal())
    assert not error.problem
    assert error.relative < 0.25


def test_other_numbers_are_seen_there() -> None:
    candidate, reference, exact = causal()
    candidate[:16] *= 2
    assert elsewhere(candidate, reference, exact).relative > 0.25


def test_nan_may_stand_where_the_exact_run_has_it_and_not_where_it_has_numbers() -> None:
    candidate, reference, exact = causal()
    candidate[:16] = math.nan
    assert not elsewhere(candidate, reference, exact).problem
    exact[:16] = reference[:16].double()
    assert elsewhere(candidate, reference, exact).problem


def followed(
    candidate: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor, unreached: torch.Tensor | None
) -> str:
    """The outcome where a program answers so; ``unreached``: the answer where the NaN has no part in it."""
    reply = SimpleNamespace(outputs=())
    trial: Any = SimpleNamespace(
        policy=TRIAL.policy,
        attempt=lambda *_: reply,
        checks=SimpleNamespace(
            check_form=lambda *_: None, agreed=lambda asked, check, _delivered: check(asked)
        ),
        buffers=SimpleNamespace(
            outputs=lambda: [candidate.clone()], snapshot=lambda _index: [candidate.clone()]
        ),
    )
    case: Any = SimpleNamespace(outputs=[("0", reference)], golden=[("0", exact)], label="NaN")
    masks = None if unreached is None else Unreached(lambda _places, _number: [unreached], 1)
    return _followed(trial, case, forgiven=False, spreads=False, signals=False, unreached=masks)


def test_a_tile_of_attention_may_skip_what_is_masked_and_no_more() -> None:
    candidate, reference, exact = causal()
    unreached = candidate.double()
    reached = candidate.clone()
    reached[40:48] = reference[:8]
    other = candidate.clone()
    other[:32] *= 2
    reference[:32] = math.nan
    assert followed(candidate, reference, exact, unreached) == "kept"
    for wrong, known in ((candidate, None), (reached, unreached), (other, unreached)):
        with pytest.raises(Refused, match="numbers where the reference has NaN"):
            followed(wrong, reference, exact, known)


def test_one_place_may_be_skipped_beside_another_that_is_not() -> None:
    """A value that is masked, in the row of a key that is infinite and gets no weight."""

    def answer(places: Collection[int], number: float) -> list[torch.Tensor | None]:
        keys, values = torch.tensor([-math.inf, 1.0, 2.0]), torch.tensor([5.0, 6.0, math.nan])
        keys[0] = number if 0 in places else keys[0]
        values[2] = number if 1 in places else values[2]
        scores = torch.where(torch.tensor([True, True, False]), keys, -math.inf)
        return [(scores.softmax(0) @ values).reshape(1)]

    of_all, *of_halves = [answers[0] for answers in Unreached(answer, 2).each()]
    assert of_all is not None
    assert torch.isnan(of_all).all(), "the answer does depend on the key"
    numbers = {float(found) for found in of_halves if found is not None and torch.isfinite(found).all()}
    assert numbers == {6.0}


def test_a_query_that_is_no_number_may_be_none_in_the_answer_and_no_other_row() -> None:
    reference = torch.randn(64, 8)
    candidate, unreached = reference.clone(), reference.double()
    reference[20] = 0.0  # what PyTorch's attention makes of it on the CPU
    candidate[20] = unreached[20] = math.nan
    assert followed(candidate, reference, reference.double(), unreached) == "kept"
    spread = candidate.clone()
    spread[21] = math.nan
    for wrong, known in ((candidate, None), (spread, unreached)):
        with pytest.raises(Refused, match="NaN or Inf where they must not be"):
            followed(wrong, reference, reference.double(), known)
