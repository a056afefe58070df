"""Which points a sweep tries and which wins: all of a small space, a seeded sample of a large one."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.space import Point, Space, SweepPoint, Tunable
from egg.engine.sweep import BATCH, Sweeper, winner

SMALL = Space((Tunable("BLOCK", 1024, (512, 1024)), Tunable("NUM_WARPS", 8, (4, 8, 16))))
LARGE = Space(
    (
        Tunable("BLOCK_M", 128, (32, 64, 128, 256)),
        Tunable("BLOCK_N", 128, (32, 64, 128, 256)),
        Tunable("GROUP", 8, (1, 4, 8)),
        Tunable("NUM_WARPS", 8, (2, 4, 8, 16)),
        Tunable("PERSISTENT", False, (False, True)),
        Tunable("ORDER", "row", ("row", "column", "zigzag")),
    )
)

ROOT = Path(__file__).parents[2]
Times = Callable[[Point], float | None]


def bowl(point: Point) -> float | None:
    """Fastest at 64 x 256, 4 warps, persistent; the largest tiles with few warps do not compile."""
    values = dict(point)
    if values["BLOCK_M"] == 256 and values["NUM_WARPS"] == 2:
        return None
    off = abs(math.log2(int(values["BLOCK_M"]) / 64)) + abs(math.log2(int(values["BLOCK_N"]) / 256))
    warps = abs(math.log2(int(values["NUM_WARPS"]) / 4))
    return 1.0 + 0.3 * off + 0.2 * warps + (0.0 if values["PERSISTENT"] else 0.5)


def batches(
    space: Space,
    limit: int,
    seed: int,
    times: Times,
    order: random.Random | None = None,
    *,
    walks: bool = False,
):
    sweeper = Sweeper(space, limit, seed, 8 if walks else BATCH, walks=walks)
    asked: list[tuple[Point, ...]] = []
    while batch := sweeper.next_batch():
        asked.append(batch)
        for point in order.sample(batch, len(batch)) if order else batch:
            sweeper.tell(point, times(point))
    assert sweeper.next_batch() == ()
    return asked


def flat(asked: Sequence[tuple[Point, ...]]) -> list[tuple]:
    return [tuple(point.items()) for batch in asked for point in batch]


def test_a_small_space_is_one_batch_with_the_current_point_first() -> None:
    asked = batches(SMALL, 6, 0, lambda _: 1.0)
    assert len(asked) == 1
    assert asked[0][0] == SMALL.current
    assert sorted(flat(asked)) == sorted(tuple(p.items()) for p in SMALL.points())


def test_a_space_without_choice_is_its_current_point() -> None:
    space = Space((Tunable("BLOCK", 64, (64,)),))
    assert batches(space, 1, 0, lambda _: None) == [({"BLOCK": 64},)]


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 21, 60])
def test_a_large_space_is_sampled_up_to_the_limit(limit: int) -> None:
    asked = batches(LARGE, limit, 7, bowl)
    tried = flat(asked)
    assert len(tried) == limit
    assert len(set(tried)) == limit
    assert asked[0][0] == LARGE.current
    assert all(len(batch) == BATCH for batch in asked[:-1])
    assert all(dict(point)[t.name] in t.values for point in tried for t in LARGE.tunables)


def test_all_points_but_one_can_be_asked_for_without_a_repeat() -> None:
    asked = flat(batches(SMALL, SMALL.size - 1, 3, lambda _: 1.0))
    assert len(set(asked)) == SMALL.size - 1


def test_values_keep_their_types() -> None:
    for batch in batches(LARGE, 24, 1, bowl):
        for point in batch:
            assert {name: type(value) for name, value in point.items()} == {
                t.name: type(t.current) for t in LARGE.tunables
            }


def test_it_learns_where_the_fast_points_are() -> None:
    """Better than random on average, over seeds; each at a twentieth of the space."""
    points = list(LARGE.points())

    def best(tried: Sequence[Point]) -> float:
        return min(t for t in map(bowl, tried) if t is not None)

    seeds = range(6)
    sampled = [best([p for batch in batches(LARGE, 48, seed, bowl) for p in batch]) for seed in seeds]
    drawn = [best(random.Random(seed).sample(points, 48)) for seed in seeds]
    assert sum(sampled) < sum(drawn)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shuffled=st.randoms(use_true_random=False), limit=st.integers(1, 26))
def test_the_same_tells_give_the_same_asks_in_any_order(seed: int, shuffled, limit: int) -> None:
    assert batches(LARGE, limit, seed, bowl) == batches(LARGE, limit, seed, bowl, shuffled)


def test_another_seed_and_other_times_give_other_points() -> None:
    asked = flat(batches(LARGE, 40, 0, bowl))
    assert asked != flat(batches(LARGE, 40, 1, bowl))
    inverse = flat(batches(LARGE, 40, 0, lambda p: 1.0 / (bowl(p) or 10.0)))
    assert asked != inverse


def test_another_process_asks_the_same() -> None:
    """What a resumed run relies on: neither hashing nor what ran before in the process matters."""
    program = (
        "import json; from tests.engine.test_sweep import *; random.seed(); "
        "print(json.dumps(flat(batches(LARGE, 40, 5, bowl))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    here = flat(batches(LARGE, 40, 5, bowl))
    assert [tuple(map(tuple, point)) for point in json.loads(done.stdout)] == here


def test_optuna_is_imported_only_for_a_large_space() -> None:
    program = (
        "import sys; from tests.engine.test_sweep import *; batches(SMALL, 6, 0, lambda _: 1.0); "
        "assert 'optuna' not in sys.modules; Sweeper(LARGE, 6, 0); assert 'optuna' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=True)


def test_without_optuna_it_walks_to_faster_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    asked = batches(LARGE, 40, 0, bowl)
    tried = flat(asked)
    assert len(set(tried)) == 40
    assert asked[0][0] == LARGE.current
    assert asked == batches(LARGE, 40, 0, bowl)
    assert min(t for point in tried if (t := bowl(dict(point))) is not None) == 1.0
    assert len(flat(batches(LARGE, 30, 0, lambda _: None))) == 30
    assert len(set(flat(batches(SMALL, SMALL.size - 1, 3, lambda _: 1.0)))) == SMALL.size - 1


def test_a_sweep_that_walks_begins_beside_the_current_point_whatever_is_installed() -> None:
    asked = batches(LARGE, 40, 0, bowl, walks=True)
    assert [len(batch) for batch in asked] == [8] * 5
    current = LARGE.current
    assert asked[0][0] == current
    apart = [sum(point[name] != value for name, value in current.items()) for point in asked[0]]
    assert apart == [0] + [1] * 7
    found = min(t for batch in asked for point in batch if (t := bowl(point)) is not None)
    assert found < (bowl(current) or 0.0)


def test_it_is_silent(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        batches(LARGE, 12, 0, bowl)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_points_that_all_fail_are_no_obstacle() -> None:
    assert len(flat(batches(LARGE, 30, 0, lambda _: None))) == 30


def test_the_protocol_is_kept() -> None:
    sweeper = Sweeper(SMALL, 6, 0)
    with pytest.raises(ValueError, match="not in the open batch"):
        sweeper.tell(SMALL.current, 1.0)
    first, *others = sweeper.next_batch()
    with pytest.raises(ValueError, match="no time is reported yet"):
        sweeper.next_batch()
    sweeper.tell(first, 1.0)
    with pytest.raises(ValueError, match="already"):
        sweeper.tell(first, 1.0)
    with pytest.raises(ValueError, match="not in the open batch"):
        sweeper.tell({"BLOCK": 3, "NUM_WARPS": 4}, 1.0)
    with pytest.raises(ValueError, match="does not name"):
        sweeper.tell({"BLOCK": 512}, 1.0)
    for wrong in (math.nan, math.inf, 0.0, -1.0):
        with pytest.raises(ValueError, match="positive"):
            sweeper.tell(others[0], wrong)
    for point in others:
        sweeper.tell(point, None)
    assert sweeper.next_batch() == ()


@pytest.mark.parametrize("limit", [0, -1])
def test_a_sweep_tries_something(limit: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Sweeper(SMALL, limit, 0)


# -- the winner ------------------------------------------------------------------------------------


def points(**times: float | None) -> list[SweepPoint]:
    return [
        SweepPoint({"BLOCK": n}, name, ms, "measured" if ms else "static.import")
        for n, (name, ms) in enumerate(times.items())
    ]


@pytest.mark.parametrize(
    ("tried", "tolerance", "wins"),
    [
        (points(now=1.0, b=0.9, c=0.8), 0.02, "c"),
        (points(now=1.0, b=0.99), 0.02, "now"),
        (points(now=1.0, b=0.98), 0.02, "now"),
        (points(now=1.0, b=0.97), 0.02, "b"),
        (points(now=1.0, b=0.999), 0.0, "b"),
        (points(now=1.0, b=1.0), 0.0, "now"),
        (points(b=1.0, now=1.0), 0.0, "now"),
        (points(now=1.0, b=0.5, c=0.5), 0.02, "b"),
        (points(now=None, b=0.9, c=0.8), 0.02, "c"),
        (points(now=1.0, b=None), 0.02, "now"),
        (points(now=None, b=None), 0.02, "now"),
        (points(b=2.0), 0.02, "b"),
        ([], 0.02, "now"),
    ],
)
def test_who_wins(tried: list[SweepPoint], tolerance: float, wins: str) -> None:
    assert winner(tried, "now", tolerance) == wins


def test_a_prediction_does_not_win_against_measurements() -> None:
    guessed = SweepPoint({"BLOCK": 9}, "guessed", 0.1, "predicted")
    assert winner([*points(now=1.0, b=0.9), guessed], "now", 0.02) == "b"
    assert winner([SweepPoint({"BLOCK": 1}, "now", 1.0, "predicted"), guessed], "now", 0.02) == "guessed"


@given(
    times=st.lists(st.none() | st.floats(1e-3, 1e3), min_size=1, max_size=12),
    tolerance=st.floats(0.0, 0.5),
)
def test_nothing_beats_the_winner_by_more_than_the_tolerance(
    times: list[float | None], tolerance: float
) -> None:
    tried = points(**{f"k{n}": ms for n, ms in enumerate(times)})
    won = {p.candidate: p.milliseconds for p in tried}[winner(tried, "k0", tolerance)]
    timed = [ms for ms in times if ms is not None]
    assert (won is None) == (not timed)
    assert won is None or won * (1.0 - tolerance) <= min(timed)
