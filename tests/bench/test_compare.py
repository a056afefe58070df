"""Two benches: what is a difference, what is a tie, and what cannot be compared."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.bench.compare import Comparison, Outcome, compare
from egg.bench.rows import BEST, Basis, Row
from egg.core.errors import UsageError
from egg.core.policy import Level, LibraryCalls, Policy
from tests.bench.made import TF32, failed, passed, task

STEADY = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998, 1.0, 1.001]
SHAKY = [0.5, 1.5, 0.7, 1.4, 1.0, 0.6, 1.6, 1.0]


def one(a: Row, b: Row, **how: object) -> Outcome:
    (found,) = compare([a], [b], **how).tasks
    return found.outcome


def speed(value: float, problem: int = 1, **how: object) -> Row:
    return passed(task(problem), {"eager": value}, **how)


def mirrored(outcome: Outcome) -> Outcome:
    pairs = {Outcome.FASTER: Outcome.SLOWER, Outcome.GAINED: Outcome.LOST}
    return (pairs | {other: this for this, other in pairs.items()}).get(outcome, outcome)


# -- one task ----------------------------------------------------------------------------------------


def test_intervals_that_do_not_meet_tell_two_kernels_apart():
    assert one(speed(2.0), speed(2.5)) is Outcome.FASTER
    assert one(speed(2.5), speed(2.0)) is Outcome.SLOWER
    assert one(speed(2.0), speed(2.0)) is Outcome.TIED
    assert one(speed(2.0, spread=0.2), speed(2.5, spread=0.2)) is Outcome.TIED


def test_either_noise_floor_makes_a_tie():
    assert one(speed(2.0, spread=0.001), speed(2.1, spread=0.001)) is Outcome.FASTER
    assert one(speed(2.0, spread=0.001, noise=0.06), speed(2.1, spread=0.001)) is Outcome.TIED
    assert one(speed(2.0, spread=0.001), speed(2.1, spread=0.001, noise=0.06)) is Outcome.TIED


def test_less_than_one_percent_is_no_difference_however_quiet_the_machine():
    quiet = {"noise": 0.0, "spread": 0.0001}
    assert one(speed(2.0, **quiet), speed(2.016, **quiet)) is Outcome.TIED
    assert one(speed(2.0, **quiet), speed(2.024, **quiet)) is Outcome.FASTER


def test_rounds_decide_where_they_were_kept():
    """Intervals that meet, though every round says the same; and wide rounds that tell nothing."""
    a, b = speed(2.0, rounds=STEADY, spread=0.1), speed(2.2, rounds=STEADY, spread=0.1)
    assert one(speed(2.0, spread=0.1), speed(2.2, spread=0.1)) is Outcome.TIED
    (found,) = compare([a], [b]).tasks
    assert found.by_rounds
    assert found.outcome is Outcome.FASTER
    assert found.ratio is not None
    assert found.ratio.median == pytest.approx(1.1)
    assert found.ratio.high - found.ratio.low < 0.01
    shaky = {"rounds": SHAKY, "spread": 0.001}
    assert one(speed(2.0, **shaky), speed(2.2, **shaky)) is Outcome.TIED
    (mixed,) = compare([a], [speed(2.2, spread=0.1)]).tasks
    assert not mixed.by_rounds


def test_one_correct_kernel_of_two_has_no_ratio():
    wrong = failed(task(1))
    assert one(wrong, speed(2.0)) is Outcome.GAINED
    assert one(speed(2.0), wrong) is Outcome.LOST
    assert one(wrong, wrong) is Outcome.NEITHER
    assert one(speed(2.0), passed(task(1), None)) is Outcome.UNTIMED
    assert one(speed(2.0), speed(2.0), baseline="compile") is Outcome.UNTIMED


# -- in all ------------------------------------------------------------------------------------------


def test_a_comparison_by_hand():
    """Ratios 2, 1, 1/2, 4 on four tasks, one gained, one only in A, one only in B, one changed."""
    a = [speed(1.0, 1), speed(1.0, 2), speed(2.0, 3), speed(1.0, 4), failed(task(5)), speed(1.0, 6)]
    b = [speed(2.0, 1), speed(1.0, 2), speed(1.0, 3), speed(4.0, 4), speed(9.0, 5), speed(1.0, 7)]
    a.append(passed(task(8), {"eager": 1.0}))
    b.append(passed(task(8, body="x + x"), {"eager": 9.0}))
    found = compare(a, b)
    assert {o: n for o, n in found.outcomes.items() if n} == {
        Outcome.FASTER: 2,
        Outcome.SLOWER: 1,
        Outcome.TIED: 1,
        Outcome.GAINED: 1,
    }
    assert (found.only_in_a, found.only_in_b, found.changed) == (("1/6",), ("1/7",), ("1/8",))
    assert found.geomean is not None
    assert found.geomean.value == pytest.approx(math.sqrt(2))
    assert found.geomean.count == 4
    assert found.sign_test == 1.0
    assert found.correct_sign_test == 1.0
    assert not found.significant
    assert found.differences == ()
    data = json.loads(json.dumps(found.to_json()))
    assert data["outcomes"]["faster"] == 2


def test_a_gain_everywhere_is_significant():
    a = [speed(1.0 + n / 10, n) for n in range(1, 11)]
    b = [speed(1.3 * (1.0 + n / 10), n) for n in range(1, 11)]
    found = compare(a, b)
    assert found.significant
    assert found.sign_test == pytest.approx(2 / 1024)
    assert compare(b, a).significant
    assert not compare(a, a).significant
    assert compare(a, a).outcomes[Outcome.TIED] == 10


def test_nothing_to_compare():
    found = compare([], [])
    assert found.tasks == ()
    assert found.geomean is None
    assert found.sign_test == 1.0
    assert not found.significant
    assert compare([speed(1.0, 1)], [speed(1.0, 2)]).geomean is None
    single = compare([speed(1.0)], [speed(2.0)])
    assert single.geomean is not None
    assert single.geomean.low is None
    assert not single.significant


# -- unlike benches ----------------------------------------------------------------------------------


def test_unlike_benches_are_refused_unless_asked_for():
    a = speed(1.0)
    for b, what in (
        (speed(1.0, policy=TF32), "precision: A match, B tf32"),
        (speed(1.0, policy=Policy(library_calls=LibraryCalls.FORBID)), "library calls"),
        (speed(1.0, policy=Policy(level=Level.QUICK)), "level"),
        (speed(1.0, gpu="NVIDIA H100"), "GPU: A NVIDIA H200, B NVIDIA H100"),
    ):
        with pytest.raises(UsageError, match=what) as refused:
            compare([a], [b])
        assert refused.value.hint
        assert any(what in difference for difference in compare([a], [b], unlike=True).differences)


def test_a_mixed_bench_is_unlike_itself():
    mixed = [speed(1.0, 1), speed(1.0, 2, gpu="NVIDIA H100")]
    with pytest.raises(UsageError, match="GPU"):
        compare(mixed, mixed)


def test_other_versions_are_told_and_no_reason_to_refuse():
    row = speed(1.0)
    newer = replace(row, versions={**row.versions, "torch": "2.13"})
    assert compare([speed(1.0)], [newer]).differences == ("torch: A 2.11, B 2.13",)
    assert compare([failed(task(1))], [speed(1.0)]).tasks[0].outcome is Outcome.GAINED


def test_the_best_of_each_is_no_common_measure():
    with pytest.raises(UsageError, match="one baseline"):
        compare([speed(1.0)], [speed(1.0)], baseline=BEST)


def test_a_baseline_that_nobody_knows_is_a_mistake():
    with pytest.raises(UsageError, match="compiled") as refused:
        compare([speed(1.0)], [speed(1.0)], baseline="compiled")
    assert "reduce-overhead" in refused.value.hint
    mine = passed(task(1), {"apex": 2.0})
    assert one(mine, mine, baseline="apex") is Outcome.TIED


def test_default_precision_can_be_compared():
    a, b = (
        passed(task(1), {"eager": 1.0}, default={"eager": value}, policy=TF32, spread=0.001)
        for value in (2.0, 3.0)
    )
    assert one(a, b) is Outcome.TIED
    assert one(a, b, basis=Basis.DEFAULT) is Outcome.FASTER


# -- whatever the numbers ----------------------------------------------------------------------------

rounds = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6) | st.just([])
kernels = st.none() | st.tuples(st.floats(0.1, 10), st.floats(0, 0.3), st.floats(0, 0.2), rounds)
benches = st.lists(kernels, min_size=1, max_size=4)


def made(found: list[tuple[float, float, float, list[float]] | None]) -> list[Row]:
    return [
        failed(task(n)) if k is None else speed(k[0], n, noise=k[1], spread=k[2], rounds=k[3])
        for n, k in enumerate(found, 1)
    ]


@settings(max_examples=60, deadline=None)
@given(benches, benches)
def test_the_other_way_round_is_the_inverse(first, second):
    a, b = made(first), made(second)
    forth, back = compare(a, b), compare(b, a)
    assert [mirrored(t.outcome) for t in forth.tasks] == [t.outcome for t in back.tasks]
    for there, here in zip(forth.tasks, back.tasks, strict=True):
        if there.ratio is not None and here.ratio is not None:
            assert there.ratio.median == pytest.approx(1 / here.ratio.median)
            assert there.ratio.low == pytest.approx(1 / here.ratio.high)
    assert forth.sign_test == back.sign_test
    assert _value(forth) == pytest.approx(1 / _value(back))
    assert all(t.outcome in (Outcome.TIED, Outcome.NEITHER) for t in compare(a, a).tasks)


def _value(found: Comparison) -> float:
    return found.geomean.value if found.geomean is not None else 1.0
