"""What is left in buffers that move: bits of what stays, and what follows from other elements."""

from __future__ import annotations

import pytest
import torch

from egg.evaluator.gates.carried import _follows, _Left
from egg.evaluator.gates.exactness import State, check_alone
from egg.evaluator.trial.refused import Refused

OLD = torch.tensor([0.5, -0.25, 0.0, 1.0])
MOVED = torch.tensor([0.75, -0.25, 0.0, 1.0])


def alone(theirs: torch.Tensor, *, before: torch.Tensor = OLD, exact: torch.Tensor | None = None) -> None:
    wide = MOVED.double() if exact is None else exact
    check_alone("bank", {"bank": before}, {"bank": theirs}, {"bank": MOVED}, {"bank": wide})


def test_what_moves_may_be_rounded_otherwise() -> None:
    alone(torch.tensor([0.75000006, -0.25, 0.0, 1.0]))


@pytest.mark.parametrize(
    "left",
    [[0.75, -0.25000003, 0.0, 1.0], [0.75, -0.25, 1e-33, 1.0], [0.75, -0.25, -0.0, 1.0]],
    ids=["last bit", "tiny", "sign of a zero"],
)
def test_what_stays_keeps_its_bits(left: list[float]) -> None:
    with pytest.raises(Refused, match="leaves alone"):
        alone(torch.tensor(left))


def test_a_value_that_only_rounds_to_what_it_was_is_not_left_alone() -> None:
    exact = MOVED.double()
    exact[3] += 1e-12
    alone(torch.tensor([0.75, -0.25, 0.0, 0.99999994]), exact=exact)


def test_a_zero_loses_its_sign_in_a_sum_with_zero() -> None:
    alone(MOVED.clone(), before=torch.tensor([0.5, -0.25, -0.0, 1.0]))


def left(theirs: list[float], ours: list[float], exact: list[float] | None = None) -> _Left:
    def state(values: list[float], dtype: torch.dtype = torch.float32) -> State:
        return {"mean": torch.tensor(values, dtype=dtype)}

    return _Left(state([]), state(theirs), state(ours), state(exact or ours, torch.float64))


CHANGED = {"mean": torch.tensor([True, False, False])}


def test_an_element_that_follows_from_the_rounding_of_another_is_seen() -> None:
    one = left([0.1, 0.2, 0.30000004], [0.1, 0.2, 0.3])
    assert not _follows(one, left([0.4, 0.2, 0.30000004], [0.4, 0.2, 0.3]), CHANGED)
    assert "element 2" in _follows(one, left([0.4, 0.2, 0.3], [0.4, 0.2, 0.3]), CHANGED)


def test_where_the_reference_moves_as_well_nothing_follows() -> None:
    one = left([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    moved = left([0.4, 0.2, 0.30000004], [0.4, 0.2, 0.3], [0.4, 0.2, 0.3 + 1e-12])
    assert not _follows(one, moved, CHANGED)  # in fp64 alone: the reference's own rounding hides it
