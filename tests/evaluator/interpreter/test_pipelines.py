"""Loads that run ahead of a loop's stores, and counts that another program starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]

LOOPS = """
@triton.jit
def running(x, o, R, C, DISTANCE: tl.constexpr, STAGES: tl.constexpr, BARRIER: tl.constexpr):
    c = tl.arange(0, 16)
    for r in tl.range(0, R, num_stages=STAGES):
        v = tl.load(x + r * C + c)
        if r >= DISTANCE:
            v += tl.load(o + (r - DISTANCE) * C + c)
        tl.store(o + r * C + c, v)
        if BARRIER:
            tl.debug_barrier()

@triton.jit
def nested(x, o, R, C):
    c = tl.arange(0, 16)
    for r in tl.range(1, R, num_stages=3):
        v = tl.load(o + (r - 1) * C + c)
        for k in range(2):
            v += tl.load(x + k * C + c)
        tl.store(o + r * C + c, v)

x, o = torch.randn(8, 16), torch.zeros(8, 16)
for distance, stages, barrier in ((1, 3, False), (2, 3, False), (3, 3, False), (1, 1, False), (1, 3, True)):
    call = lambda: running[(1,)](x, o, 8, 16, distance, stages, barrier)
    out[f"{distance} {stages} {barrier}"] = fault(call)
out["nested"] = fault(lambda: nested[(1,)](x, o, 8, 16))
"""

COUNTS = """
@triton.jit
def started_inside(o, SEM: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(o, 0)
    tl.atomic_add(o, 1, sem=SEM)

@triton.jit
def highest_started_inside(x, o):
    i = tl.arange(0, 4)
    if tl.program_id(0) == 0:
        tl.store(o + i, float("-inf"))
    tl.atomic_max(o + i, tl.load(x + tl.program_id(0) * 4 + i))

@triton.jit
def set_back_by_the_last(o, N):
    if tl.atomic_add(o, 1) == N - 1:
        tl.store(o, 0)

o, f, x = torch.zeros(1, dtype=torch.int32), torch.zeros(4), torch.randn(8, 4)
def again(call):
    for _ in range(12):
        found = fault(call)
        if found:
            return found["reason"]
out["relaxed"] = again(lambda: started_inside[(8,)](o, "relaxed"))
out["acquires"] = again(lambda: started_inside[(8,)](o, "acq_rel"))
out["highest"] = again(lambda: highest_started_inside[(8,)](x, f))
o.zero_()
out["set back"] = again(lambda: set_back_by_the_last[(8,)](o, 8))
"""


@pytest.mark.parametrize("loop", ["1 3 False", "2 3 False"])
def test_a_load_of_what_an_iteration_in_flight_stores_is_a_race(
    interpret: Callable[[str], Facts], loop: str
) -> None:
    found = interpret(LOOPS)[loop]
    assert found["reason"] == "race"
    assert "num_stages=3" in found["message"]


@pytest.mark.parametrize("loop", ["3 3 False", "1 1 False", "1 3 True", "nested"])
def test_what_no_load_runs_ahead_of_is_none(interpret: Callable[[str], Facts], loop: str) -> None:
    assert interpret(LOOPS)[loop] is None


@pytest.mark.parametrize("start", ["relaxed", "acquires", "highest"])
def test_a_count_that_another_program_starts_is_a_race(interpret: Callable[[str], Facts], start: str) -> None:
    assert interpret(COUNTS)[start] == "race"


def test_the_last_program_may_set_a_counter_back(interpret: Callable[[str], Facts]) -> None:
    assert interpret(COUNTS)["set back"] is None
