"""Where in a wrong output the errors lie."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from egg.core.codec import from_json, to_json
from egg.core.evaluation import RefusalFacts, Rejected, WrongPlaces
from egg.core.policy import Level, Policy
from egg.core.source import Candidate
from egg.evaluator.compare import places
from egg.evaluator.compare.places import wrong_places
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from tests.engine import scripts

GOLDEN = torch.arange(64 * 48, dtype=torch.float64).reshape(64, 48) / 100 + 1


def seen(**at: object) -> WrongPlaces:
    """``GOLDEN`` in fp32 with a place overwritten."""
    made = GOLDEN.float()
    for where, value in at.values():  # type: ignore[misc]
        made[where] = value
    found = wrong_places(made, GOLDEN)
    assert found is not None
    return found


def test_a_last_column_that_was_never_written():
    found = seen(column=((slice(None), -1), math.nan))
    assert found.along == ("dimension 1 (size 48): only the last index",)
    assert (found.shape, found.wrong, found.of, found.first) == ((64, 48), 64, 64 * 48, (0, 47))
    assert math.isnan(found.got)
    assert found.expected == pytest.approx(float(GOLDEN[0, 47]))
    facts = RefusalFacts(places=found)
    read = from_json(RefusalFacts, to_json(facts))
    assert read.places.along == found.along
    assert math.isnan(read.places.got)


@pytest.mark.parametrize(
    ("where", "along"),
    [
        ((slice(None, None, 4),), ("dimension 0 (size 64): every 4th index from 0 to 60",)),
        (
            (slice(16, 32), slice(32, 48)),
            (
                "dimension 0 (size 64): 16 to 31, 16 indices",
                "dimension 1 (size 48): 32 to the end, 16 indices",
            ),
        ),
        ((0,), ("dimension 0 (size 64): only the first index",)),
        ((5, 7), ("dimension 0 (size 64): only index 5", "dimension 1 (size 48): only index 7")),
        (([1, 5, 6],), ("dimension 0 (size 64): 3 indices: 1, 5, 6",)),
        ((slice(None),), ()),
    ],
)
def test_a_pattern_is_named(where, along):
    assert seen(place=(where, 1e6)).along == along


def test_rounding_beside_a_large_error_does_not_count_and_equal_outputs_have_no_places():
    made = (GOLDEN * (1 + 1e-6)).float()
    made[3, 4] = -5.0
    found = wrong_places(made, GOLDEN)
    assert found is not None
    assert (found.wrong, found.first, found.got) == (1, (3, 4), -5.0)
    assert wrong_places(GOLDEN, GOLDEN) is None
    both = GOLDEN.clone()
    both[0, 0] = math.inf
    assert wrong_places(both, both) is None


def test_a_number_and_integers_have_places_too():
    found = wrong_places(torch.tensor(2.0), torch.tensor(3.0))
    assert found is not None
    assert (found.shape, found.first, found.wrong, found.along) == ((), (), 1, ())
    counted = wrong_places(torch.tensor([1, 2, 9]), torch.tensor([1, 2, 3]))
    assert counted is not None
    assert counted.along == ("dimension 0 (size 3): only the last index",)


@given(
    st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 5)),
    st.data(),
    st.integers(1, 40),
)
def test_pieces_find_what_the_whole_shows(shape: tuple[int, int, int], data: st.DataObject, piece: int):
    """However small the pieces are that an output is read in."""
    golden = torch.ones(shape, dtype=torch.float64)
    made = golden.clone().float()
    indices = data.draw(st.sets(st.tuples(*(st.integers(0, size - 1) for size in shape)), min_size=1))
    for index in indices:
        made[index] = 7.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "PIECE", piece)
        found = wrong_places(made, golden)
    assert found is not None
    assert (found.wrong, found.first) == (len(indices), min(indices))
    for dim, size in enumerate(shape):
        held = {index[dim] for index in indices}
        named = any(words.startswith(f"dimension {dim} ") for words in found.along)
        assert named == (size > 1 and len(held) < size)


def test_the_judge_tells_where_a_kernel_is_wrong():
    """The last element is wrong, on a CPU."""
    source = scripts.kernel("", body="tl.where(at == n - 1, 9.0, x * 2)")
    oracle = Oracle("cpu")
    try:
        verdict = oracle.judge(
            Question(scripts.TASK, Candidate(source), Policy(level=Level.QUICK), "H200")
        ).verdict
    finally:
        oracle.close()
    assert isinstance(verdict, Rejected)
    assert verdict.refusal.facts is not None
    found = verdict.refusal.facts.places
    assert found is not None
    assert found.along
    assert found.along[0].endswith("only the last index")
