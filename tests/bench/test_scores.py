"""Scores against cases computed by hand: ties, missing and failed tasks, nothing at all."""

from __future__ import annotations

import json
import math
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.bench.families import WholeFamily
from egg.bench.rows import BEST, Basis, NoKernel, Row, Spent, Unable
from egg.bench.scores import THRESHOLDS, Group, Scores, Speedups, score
from egg.bench.statistics import Share, estimate, geomean, mean, median, sign_test
from egg.core.evaluation import Gate
from egg.core.facts import Family
from tests.bench.made import TF32, failed, passed, refused, task


def eager(group: Group) -> Speedups:
    found = group.against("eager")
    assert found is not None
    return found


def fast(speedups: Speedups) -> list[tuple[int, int]]:
    """Counts of ``fast_p`` for p = 0, 0.5, 0.8, 1, 1.5, 2."""
    assert [found.p for found in speedups.fast] == [0.0, 0.5, 0.8, 1.0, 1.5, 2.0]
    return [(found.share.count, found.share.total) for found in speedups.fast]


def bench(*speedups: float | None) -> list[Row]:
    """Problem by problem a speedup over eager, or a failure."""
    return [
        failed(task(n)) if speedup is None else passed(task(n), {"eager": speedup})
        for n, speedup in enumerate(speedups, 1)
    ]


# -- fast_p and the means, by hand -------------------------------------------------------------------


def test_ties_failed_and_missing_tasks_by_hand():
    """Five tasks: exactly 2, exactly 1, exactly one half, one refused, one without a row."""
    tasks = [task(n) for n in range(1, 6)]
    found = score(bench(2.0, 1.0, 0.5, None), tasks).all
    assert found.tasks == 5
    assert (found.correct.count, found.correct.total, found.correct.value) == (3, 5, 0.6)
    assert found.verdicts == {"accepted": 3, "refused at correctness": 1, "no kernel": 1}
    speed = eager(found)
    assert fast(speed) == [(3, 5), (2, 5), (2, 5), (1, 5), (1, 5), (0, 5)]
    assert speed.fast_p(1.0).value == 0.2
    assert (speed.timed, speed.untimed) == (3, 0)
    assert speed.mean is not None
    assert speed.mean.value == pytest.approx(3.5 / 3)
    assert speed.mean.count == 3
    assert speed.median is not None
    assert speed.median.value == 1.0
    assert speed.geomean is not None
    assert speed.geomean.value == pytest.approx(1.0)
    assert speed.geomean.count == 3
    assert speed.geomean_all is not None
    assert speed.geomean_all.value == pytest.approx(1.0)
    assert speed.geomean_all.count == 5


def test_the_two_geometric_means_by_hand():
    """Correct at 0.5, 2/3 and 5, two failed: the third root of 5/3 over the correct, the fifth over all."""
    speed = eager(score(bench(0.5, None, 2 / 3, 5.0, None)).all)
    assert speed.geomean is not None
    assert speed.geomean.value == pytest.approx((5 / 3) ** (1 / 3))
    assert speed.geomean_all is not None
    assert speed.geomean_all.value == pytest.approx((5 / 3) ** (1 / 5))
    assert speed.median is not None
    assert speed.median.value == pytest.approx(2 / 3)
    assert fast(speed) == [(3, 5), (2, 5), (1, 5), (1, 5), (1, 5), (1, 5)]


def test_just_above_a_threshold_counts_and_exactly_on_it_does_not():
    for p in THRESHOLDS[1:]:
        on, above = (eager(score(bench(speedup)).all) for speedup in (p, math.nextafter(p, 3.0)))
        assert on.fast_p(p).count == 0
        assert above.fast_p(p).count == 1


def test_no_tasks_at_all():
    found = score([], [])
    for group in (found.all, found.sound, found.degenerate):
        assert group.tasks == 0
        assert group.correct.value is None
        assert group.correct.low is None
        speed = eager(group)
        assert fast(speed) == [(0, 0)] * 6
        assert speed.mean is speed.median is speed.geomean is speed.geomean_all is None
        assert group.cost.money_per_kernel is None
    assert found.levels == ()
    assert found.families == ()
    assert score([]) == found


def test_all_failed():
    found = score([failed(task(1)), failed(task(2), NoKernel("none")), failed(task(3), Unable("dead"))]).all
    assert found.correct.value == 0.0
    assert found.correct.low == 0.0
    assert found.verdicts == {"refused at correctness": 1, "no kernel": 1, "unable": 1}
    speed = eager(found)
    assert fast(speed) == [(0, 3)] * 6
    assert speed.mean is speed.median is speed.geomean is None
    assert speed.geomean_all is not None
    assert speed.geomean_all.value == 1.0
    assert found.cost.gpu_seconds_per_kernel is None


def test_one_task_has_a_value_and_no_interval_over_tasks():
    speed = eager(score(bench(1.3)).all)
    assert fast(speed) == [(1, 1), (1, 1), (1, 1), (1, 1), (0, 1), (0, 1)]
    for figure in (speed.mean, speed.median, speed.geomean, speed.geomean_all):
        assert figure is not None
        assert figure.value == pytest.approx(1.3)
        assert figure.low is figure.high is None
    assert speed.fast_p(1.0).low == pytest.approx(0.2065, abs=1e-4)


def test_a_correct_kernel_without_a_time_is_correct_and_never_fast():
    rows = [passed(task(1), None), passed(task(2), {"eager": 3.0}), failed(task(3))]
    speed = eager(score(rows).all)
    assert fast(speed) == [(2, 3), (1, 3), (1, 3), (1, 3), (1, 3), (1, 3)]
    assert (speed.timed, speed.untimed) == (1, 1)
    assert speed.geomean_all is not None
    assert speed.geomean_all.value == pytest.approx(math.sqrt(3.0))
    assert speed.geomean_all.count == 2
    unmeasured = eager(score([rows[0], rows[2]]).all)
    assert unmeasured.fast_p(0.0).count == 1
    assert unmeasured.geomean_all is None


def test_a_win_inside_the_noise_is_no_win():
    rows = [
        passed(task(1), {"eager": 1.02}, noise=0.03),
        passed(task(2), {"eager": 1.02}, noise=0.01),
        passed(task(3), {"eager": 1.02}, noise=0.01, spread=0.02),
    ]
    speed = eager(score(rows).all)
    assert speed.fast_p(1.0).count == 3
    assert speed.faster == Share(1, 3)


# -- baselines and precisions ------------------------------------------------------------------------


def test_each_baseline_and_the_best_of_them():
    rows = [
        passed(task(1), {"eager": 2.0, "compile": 1.2, "reduce-overhead": 0.9}),
        passed(task(2), {"eager": 1.5, "compile": 1.6}),
        failed(task(3)),
    ]
    group = score(rows).all
    names = [(s.baseline, s.basis) for s in group.speedups]
    assert names == [(name, Basis.MATCHED) for name in ("eager", "compile", "reduce-overhead", BEST)]
    reduced, best = group.against("reduce-overhead"), group.against(BEST)
    assert reduced is not None
    assert (reduced.timed, reduced.untimed) == (1, 1)
    assert fast(reduced) == [(2, 3), (1, 3), (1, 3), (0, 3), (0, 3), (0, 3)]
    assert best is not None
    assert best.geomean is not None
    assert best.geomean.value == pytest.approx(math.sqrt(0.9 * 1.5))
    assert group.against("compile", Basis.DEFAULT) is None


def test_default_precision_is_scored_apart_where_a_policy_differs():
    rows = [
        passed(task(1), {"eager": 1.1, "compile": 0.9}, default={"eager": 4.0, "compile": 3.0}, policy=TF32),
        failed(task(2), policy=TF32),
    ]
    group = score(rows).all
    matched, default = group.against("eager"), group.against("eager", Basis.DEFAULT)
    assert matched is not None
    assert default is not None
    assert (matched.fast_p(2.0).count, default.fast_p(2.0).count) == (0, 1)
    best = group.against(BEST, Basis.DEFAULT)
    assert best is not None
    assert best.geomean is not None
    assert best.geomean.value == pytest.approx(3.0)


# -- groups ------------------------------------------------------------------------------------------


def test_levels_families_and_degenerate_tasks_apart():
    rows = [
        passed(task(1), {"eager": 2.0}, family=Family.PRODUCT),
        passed(task(2), {"eager": 9.0}, degenerate=True),
        failed(task(1, level=2), family=Family.PRODUCT),
        passed(task(2, level=2), {"eager": 3.0}, degenerate=None),
        passed(task(7, level=None), {"eager": 4.0}),
    ]
    found = score(rows)
    assert [(g.name, g.tasks, g.correct.count) for g in found.levels] == [
        ("level 1", 2, 2),
        ("level 2", 2, 1),
    ]
    assert [(g.name, g.tasks) for g in found.families] == [("pointwise", 3), ("product", 2)]
    assert (found.all.tasks, found.all.degenerate, found.all.unaudited) == (5, 1, 2)
    assert (found.sound.tasks, found.degenerate.tasks) == (4, 1)
    assert eager(found.degenerate).fast_p(2.0).count == 1
    assert eager(found.sound).fast_p(2.0).count == 2


def test_the_last_row_of_a_task_counts():
    found = score([failed(task(1), Unable("dead")), passed(task(1), {"eager": 2.0})]).all
    assert (found.tasks, found.correct.count) == (1, 1)


def test_kernelbenchs_own_rules_count_correct_kernels_of_which_they_are_known():
    rows = [
        replace(passed(task(1), {"eager": 2.0}, kernelbench=True), kernelbench_flags=()),
        replace(passed(task(2), {"eager": 2.0}, kernelbench=False), kernelbench_flags=("code_bypass",)),
        passed(task(3), {"eager": 2.0}, kernelbench=True),
        replace(failed(task(4)), kernelbench_flags=()),
    ]
    found = score(rows).all
    assert (found.kernelbench.count, found.kernelbench.total) == (2, 3)
    assert (found.kernelbench_static.count, found.kernelbench_static.total) == (1, 2)


def test_what_a_kernel_cost_includes_what_failed():
    rows = [
        passed(task(1), {"eager": 2.0}, spent=Spent(100, 20, 0.5, 0, 3, 10.0, 60.0)),
        passed(task(2), {"eager": 2.0}, spent=Spent(0, 0, 0.0, 2, 1, 4.0, 5.0)),
        failed(task(3), refused(task(3), Gate.STATIC), spent=Spent(300, 80, 1.5, 1, 9, 26.0, 100.0)),
    ]
    cost = score(rows).all.cost
    assert (cost.tokens, cost.money, cost.unpriced_calls) == (500, 2.0, 3)
    assert (cost.gpu_seconds, cost.wall_seconds) == (40.0, 165.0)
    assert (cost.tokens_per_kernel, cost.money_per_kernel, cost.gpu_seconds_per_kernel) == (250.0, 1.0, 20.0)


def test_scores_are_json_with_every_interval():
    data = json.loads(json.dumps(score(bench(2.0, 3.0, None)).to_json()))
    assert data["all"]["correct"]["high"] == pytest.approx(Share(2, 3).high)
    assert data["all"]["speedups"][0]["fast"][3]["p"] == 1.0
    assert data["all"]["speedups"][0]["geomean"]["low"] <= math.sqrt(6)


# -- intervals ---------------------------------------------------------------------------------------


def test_shares_have_wilsons_interval():
    """Ends as tables give them."""
    for count, total, low, high in (
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 2, 0.0945, 0.9055),
        (50, 100, 0.4038, 0.5962),
    ):
        share = Share(count, total)
        assert share.low == pytest.approx(low, abs=1e-4)
        assert share.high == pytest.approx(high, abs=1e-4)
    for count, total in ((3, 2), (-1, 2), (1, 0)):
        with pytest.raises(ValueError, match="not a share"):
            Share(count, total)


@given(st.integers(1, 10_000), st.data())
def test_a_share_lies_in_its_interval(total, data):
    share = Share(data.draw(st.integers(0, total)), total)
    assert share.low is not None
    assert share.value is not None
    assert share.high is not None
    assert 0 <= share.low <= share.value <= share.high <= 1


def test_bootstrap_of_many_tasks_is_as_wide_as_the_normal_distribution_says():
    values = [random.Random(n).gauss(10.0, 2.0) for n in range(400)]
    found = estimate(values, mean)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * 2.0 / 20, rel=0.15)


speeds = st.lists(st.none() | st.floats(1e-3, 1e3) | st.sampled_from(THRESHOLDS[1:]), max_size=30)


@settings(max_examples=40, deadline=None)
@given(speeds, st.randoms(use_true_random=False))
def test_scores_hold_together_whatever_the_speedups(found, shuffler):
    rows = bench(*found)
    scores = score(rows)
    speed, known = eager(scores.all), [s for s in found if s is not None]
    counts = [share.share.count for share in speed.fast]
    assert counts == sorted(counts, reverse=True)
    assert counts == [sum(s > p for s in known) for p in THRESHOLDS]
    assert counts[0] == scores.all.correct.count == len(known)
    if known:
        assert speed.geomean is not None
        assert speed.mean is not None
        assert speed.median is not None
        assert min(known) * 0.999 <= speed.geomean.value <= speed.mean.value * 1.001
        for figure in (speed.mean, speed.median, speed.geomean):
            if len(known) > 1:
                assert figure.low is not None
                assert figure.high is not None
                assert figure.low <= figure.value <= figure.high
    shuffler.shuffle(rows)
    assert score(rows) == scores


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20))
def test_statistics_of_one_sample(values):
    for statistic in (mean, median, geomean):
        found = estimate(values, statistic)
        assert found is not None
        assert min(values) * 0.999 <= found.value <= max(values) * 1.001
        assert found == estimate(values[::-1], statistic)


def test_the_sign_test_by_hand():
    """Of ten tosses, one or fewer heads or tails: 2 * (1 + 10) / 1024."""
    assert sign_test(9, 1) == sign_test(1, 9) == pytest.approx(22 / 1024)
    assert sign_test(5, 5) == 1.0
    assert sign_test(0, 0) == 1.0
    assert sign_test(3, 0) == 0.25
    assert sign_test(2000, 0) < 1e-300


def test_scoring_250_tasks_is_quick():
    rows = [
        passed(task(n, level=1 + n % 3), {"eager": 1 + n / 100, "compile": 1.0 + n / 300}, family=family)
        for n, family in zip(range(1, 251), [*Family, *WholeFamily] * 20, strict=False)
    ]
    started = time.process_time()
    found: Scores = score(rows)
    assert time.process_time() - started < 10
    assert sum(group.tasks for group in found.families) == 250
