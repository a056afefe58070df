"""Few programs and few trips stand for all of them."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import pytest
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.evaluator.work.sampling import Tally, added_up
from tests.evaluator.counting import access, count, tensor


@triton.jit
def uneven_kernel(x, out, pages, PAGE: tl.constexpr):
    part, i = tl.program_id(0), tl.arange(0, PAGE)
    total = tl.zeros((PAGE,), tl.float32)
    for page in range(tl.maximum(pages // (part + 1), 1)):
        total += tl.load(x + page * PAGE + i)
    tl.store(out + part, tl.sum(total, 0))


def test_work_that_falls_off_quickly_is_found_where_it_is():
    parts, pages = 4096, 8192
    work = count(uneven_kernel, (parts,), tensor(pages, 128), tensor(parts), pages, PAGE=128)
    trips = [max(pages // (part + 1), 1) for part in range(parts)]
    assert access(work, "x").bytes == pytest.approx(4 * 128 * sum(trips), rel=0.02)
    assert work.imbalance == pytest.approx(max(trips) / (sum(trips) / parts), rel=0.03)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 10**9),
    level=st.integers(1, 1000),
    slope=st.integers(0, 5),
    tail=st.integers(0, 1000),
)
def test_what_changes_evenly_is_added_up_exactly_but_for_its_ends(
    count: int, level: int, slope: int, tail: int
):
    looked: list[int] = []

    def look(index: int) -> Tally:
        looked.append(index)
        return {"work": tail if index == count - 1 else level + slope * index}

    total = added_up(count, look, least=5, most=12)
    assert total["work"] == pytest.approx((count - 1) * level + slope * (count - 1) * (count - 2) / 2 + tail)
    assert len(looked) == len(set(looked)) <= 12


@settings(max_examples=100, deadline=None)
@given(count=st.integers(100, 100_000), share=st.floats(0.01, 0.99))
def test_a_break_is_closed_in_on(count: int, share: float):
    at = round(count * share)
    total = added_up(count, lambda i: {"work": 10.0 if i < at else 1.0}, least=8, most=64)
    assert total["work"] == pytest.approx(10 * at + (count - at), rel=1e-3)
