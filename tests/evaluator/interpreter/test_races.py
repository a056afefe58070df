"""Conflicts between programs of one launch are found, and honest sharing is not taken for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]


RACES = """
@triton.jit
def all_store_their_id(o):
    tl.store(o + 3, tl.program_id(0))

@triton.jit
def all_store_seven(o):
    tl.store(o, 7.0)

@triton.jit
def overlapping(x, o, n, B: tl.constexpr):
    start = min(tl.program_id(0) * B, n - B)
    i = start + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * 2)

@triton.jit
def shift_in_place(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i + 1, mask=i + 1 < n)
    tl.load(x + i)
    tl.store(x + i, v, mask=i + 1 < n)

@triton.jit
def look_back(x, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    before = tl.load(x + i - 1, mask=i > 0, other=0.0)
    tl.debug_barrier()
    tl.store(x + i, before + 1)

@triton.jit
def double_in_place(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(x + i, tl.load(x + i, mask=m) * 2, mask=m)

@triton.jit
def split_k(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))

@triton.jit
def init_then_accumulate(x, o, B: tl.constexpr):
    p = tl.program_id(0)
    if p == 0:
        tl.store(o, 0.0)
    tl.atomic_add(o, tl.sum(tl.load(x + p * B + tl.arange(0, B)), axis=0))

@triton.jit
def last_one_sums(x, partial, counter, o, B: tl.constexpr, P: tl.constexpr):
    p = tl.program_id(0)
    tl.store(partial + p, tl.sum(tl.load(x + p * B + tl.arange(0, B)), axis=0))
    done = tl.atomic_add(counter, 1)
    if done == P - 1:
        tl.store(o, tl.sum(tl.load(partial + tl.arange(0, P)), axis=0))

@triton.jit
def columns(x, o, stride, B: tl.constexpr, R: tl.constexpr):
    c = tl.program_id(1) * B + tl.arange(0, B)
    r = tl.program_id(0) * R + tl.arange(0, R)
    at = r[:, None] * stride + c[None, :]
    tl.store(x + at, tl.load(x + at) + 1)

@triton.jit
def waits_for_the_next(flag):
    p = tl.program_id(0)
    if p == 0:
        while tl.atomic_add(flag, 0) == 0:
            pass
    tl.atomic_add(flag, 1)

@triton.jit
def chain(flag, AXIS: tl.constexpr):
    # each program waits for the one before, counted along one axis first
    if AXIS == 0:
        me = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    else:
        me = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if me > 0:
        while tl.atomic_add(flag + me - 1, 0) == 0:
            pass
    tl.atomic_xchg(flag + me, 1)

@triton.jit
def half_atomic(o, B: tl.constexpr):
    tl.atomic_add(o + tl.arange(0, B) % 4, tl.full((B,), 1.0, o.dtype.element_ty))

out["ids"] = fault(lambda: all_store_their_id[(4,)](torch.zeros(8, dtype=torch.int32)))
out["equal"] = fault(lambda: all_store_seven[(4,)](torch.zeros(1)))
out["equal notes"] = list(session.notes)
session.reset()
x, o = torch.randn(40), torch.empty(40)
out["overlap"] = fault(lambda: overlapping[(3,)](x, o, 40, 16))
out["overlap value"] = error(o, x * 2)
out["shift"] = fault(lambda: shift_in_place[(4,)](torch.randn(64), 64, 16))
out["look back"] = fault(lambda: look_back[(4,)](torch.zeros(64), 16))
for _ in range(3):
    out["in place"] = fault(lambda: double_in_place[(4,)](torch.randn(60), 60, 16))
x, o = torch.randn(64), torch.zeros(1)
out["split k"] = fault(lambda: split_k[(4,)](x, o, 64, 16))
out["split k value"] = error(o, x.sum())
session.reset()
out["init"] = fault(lambda: init_then_accumulate[(4,)](x, torch.empty(1), 16))
partial, counter = torch.empty(4), torch.zeros(1, dtype=torch.int32)
out["last one"] = fault(lambda: last_one_sums[(4,)](x, partial, counter, o, 16, 4))
out["last one value"] = error(o, x.sum())
out["last one notes"] = list(session.notes)
x = torch.zeros(16, 32)
out["column tiles"] = fault(lambda: columns[(4, 4)](x, o, 32, 8, 4))
out["column value"] = error(x, torch.ones(16, 32))
out["spin"] = fault(lambda: waits_for_the_next[(2,)](torch.zeros(1, dtype=torch.int32)))
for axis in (0, 1):
    out[f"chain {axis}"] = fault(lambda: chain[(2, 3)](torch.zeros(6, dtype=torch.int32), axis))
for dtype in (torch.float16, torch.bfloat16):
    o = torch.zeros(4, dtype=dtype)
    half_atomic[(2,)](o, 16)
    out[f"atomic {dtype}"] = o.tolist()
"""


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("ids", "program (1, 0, 0) stores, with another value, what program (0, 0, 0) stores"),
        ("shift", "stores what"),
        ("look back", "loads what program (0, 0, 0) stores: argument 'x', element offset 15"),
        ("init", "changes atomically what program (0, 0, 0) stores"),
    ],
)
def test_races_are_found(interpret: Callable[[str], Facts], case: str, words: str) -> None:
    found = interpret(RACES)[case]
    assert found is not None, "nothing was raised"
    assert found["reason"] == "race"
    assert words in found["message"]


@pytest.mark.parametrize("case", ["equal", "overlap", "in place", "split k", "last one", "column tiles"])
def test_honest_kernels_are_no_races(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(RACES)[case] is None


def test_what_is_not_judged_is_noted(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(RACES)
    assert [n for n in facts["equal notes"] if "equal values" in n]
    assert facts["last one notes"] == []


def test_waiting_for_a_later_program_ends(interpret: Callable[[str], Facts]) -> None:
    found = interpret(RACES)["spin"]
    assert found["reason"] == "unsupported"
    assert "program (0, 0, 0): polls one element" in found["message"]


def test_programs_start_along_the_first_axis_as_on_a_gpu(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(RACES)
    assert facts["chain 0"] is None
    assert "program (1, 0, 0): polls one element" in facts["chain 1"]["message"]


def test_values_beside_the_race_check(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(RACES)
    assert facts["overlap value"] == facts["column value"] == 0
    assert max(facts["split k value"], facts["last one value"]) < 1e-5
    assert facts["atomic torch.float16"] == facts["atomic torch.bfloat16"] == [8, 8, 8, 8]
