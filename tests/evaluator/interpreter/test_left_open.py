"""What a GPU may do in any way, the interpreter does not do in the one way that suits a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]

LANES = """
@triton.jit
def stores_what_a_neighbour_loads(x, B: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + (i + 1) % B, v)

@triton.jit
def stores_twice(x, o, B: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, 0.0)
    if BARRIER:
        tl.debug_barrier()
    tl.store(o + B - 1 - i, v)

@triton.jit
def adds_to_what_others_store(x, o, B: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, 0.0)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_add(o + B - 1 - i, tl.load(x + i), sem="relaxed")

@triton.jit
def tile_atomic_between(x, o, c, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))
    tl.atomic_add(c + i, 1)
    tl.store(x + i, tl.load(o + B - 1 - i))

@triton.jit
def updates_a_scalar(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    mean = tl.load(o)
    tl.store(o, mean * 0.9 + tl.sum(tl.load(x + i)) * 0.1)

@triton.jit
def in_place_twice(x, B: tl.constexpr):
    i = tl.arange(0, B)
    for _ in range(2):
        v = tl.load(x + i)
        tl.store(x + i, v - tl.max(v))
        tl.store(x + i, tl.load(x + i) * 2)

x, o, c = torch.randn(64), torch.zeros(64), torch.zeros(64, dtype=torch.int32)
for barrier in (False, True):
    out[f"load, store {barrier}"] = fault(lambda: stores_what_a_neighbour_loads[(1,)](x, 64, barrier))
    out[f"store, store {barrier}"] = fault(lambda: stores_twice[(1,)](x, o, 64, barrier))
    out[f"store, atomic {barrier}"] = fault(lambda: adds_to_what_others_store[(1,)](x, o, 64, barrier))
out["tile atomic"] = fault(lambda: tile_atomic_between[(1,)](x, o, c, 64))
out["scalar"] = fault(lambda: updates_a_scalar[(1,)](x, o, 64))
out["in place"] = fault(lambda: in_place_twice[(1,)](x, 64))
"""

ORDERS = """
from egg.evaluator.interpreter.session import by_lot

@triton.jit
def running(x, total, o):
    p = tl.program_id(0)
    v = tl.load(x + p)
    tl.store(o + p, tl.atomic_add(total, v) + v)

@triton.jit
def then(a, b, c, d):
    return a * c, b * c + d

@triton.jit
def mixed(a, b):
    return a + b + a * b

@triton.jit
def reduces(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    _, last = tl.reduce((v, v), 0, then)
    tl.store(o, last)
    tl.store(o + 1, tl.reduce(v * 0.01, 0, mixed))

@triton.jit
def first_of_equals(x, o, B: tl.constexpr, LEFT: tl.constexpr):
    tl.store(o, tl.argmax(tl.load(x + tl.arange(0, B)), 0, tie_break_left=LEFT))

@triton.jit
def reshaped(x, o, B: tl.constexpr, REORDER: tl.constexpr):
    v = tl.reshape(tl.load(x + tl.arange(0, B * B)), (B, B), can_reorder=REORDER)
    tl.store(o + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :], v)

@triton.jit
def gap(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, v * v - v * v)

x = torch.rand(64) + 0.5
o, total = torch.zeros(64), torch.zeros(1)
running[(64,)](x, total, o)
out["in order"] = error(o, x.cumsum(0)) < 1e-3
with by_lot(7):
    total.zero_()
    running[(64,)](x, total, o)
    out["by lot"] = error(o, x.cumsum(0)) < 1e-3
    out["total"] = abs(float(total) - float(x.sum())) < 1e-3

def both():
    got = torch.zeros(2)
    reduces[(1,)](x, got, 64)
    want, sum_ = 0.0, 0.0
    for value in x.tolist():
        want = want * value + value
        sum_ = sum_ + value * 0.01 + sum_ * value * 0.01
    return [abs(float(got[0]) - want) < 1e-3 * abs(want), abs(float(got[1]) - sum_) < 1e-3]

out["reduced"] = both()
with by_lot(3):
    out["reduced by lot"] = both()

place = torch.zeros(1, dtype=torch.int32)
first_of_equals[(1,)](torch.ones(64), place, 64, True)
out["left"] = int(place)
first_of_equals[(1,)](torch.ones(64), place, 64, False)
out["any"] = int(place)

square = torch.arange(64.0)
reshaped[(1,)](square, o, 8, False)
out["kept"] = bool((o == square).all())
reshaped[(1,)](square, o, 8, True)
out["reordered"] = [bool((o == square).all()), bool((o.sort().values == square).all())]

gap[(1,)](x, o, 64)
out["rounded twice"] = float(o.abs().max())
with by_lot(1):
    gap[(1,)](x, o, 64)
out["rounded once"] = float(o.abs().max())
"""

NUMBERS = """
@triton.jit
def counters(o):
    for i in range(-5, -4):
        tl.store(o, i % 3)
        tl.store(o + 1, i // 3)
        tl.store(o + 2, i * 1000000000)
    for i in tl.range(-5, -4):
        tl.store(o + 3, i % 3)
    for i in tl.static_range(-5, -4):
        tl.store(o + 4, i % 3)

o = torch.zeros(5, dtype=torch.int64)
counters[(1,)](o)
out["counters"] = o.tolist()

@triton.jit
def approximate(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    asm: tl.constexpr = "tanh.approx.f32 $0, $1;"
    tl.store(o + i, tl.inline_asm_elementwise(asm, "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1))

x, got = torch.randn(256), torch.zeros(256)
approximate[(1,)](x, got, 256)
out["tanh"] = float(((got - x.tanh()) / x.tanh()).abs().max())

@triton.jit
def half_sum(a, b, o, K: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * 16 + m[None, :])
    tl.store(o + m[:, None] * 16 + m[None, :], tl.dot(left, right, out_dtype=tl.float16))

a, b, o = torch.rand(16, 1024).half(), torch.rand(1024, 16).half(), torch.zeros(16, 16).half()
half_sum[(1,)](a, b, o, 1024)
exact = a.double() @ b.double()
out["half"] = [float((o.double() - exact).abs().mean()), float((exact.half().double() - exact).abs().mean())]
"""

TUNED = """
def tuned(**options):
    @triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], **options)
    @triton.jit
    def adds(x, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))
    o = torch.zeros(1)
    adds[lambda meta: (triton.cdiv(64, meta["B"]),)](torch.ones(64), o, 64)
    return float(o)

out["added"] = [tuned(), tuned(reset_to_zero=["o"]), tuned(restore_value=["o"])]
out["launches"] = len(session.launches)
"""


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("load, store False", "stores what another of its lanes loads"),
        ("store, store False", "stores, with another value, what another of its lanes stores"),
        ("store, atomic False", "changes atomically what another of its lanes stores"),
        ("tile atomic", "loads what another of its lanes stores"),
    ],
)
def test_lanes_conflict(interpret: Callable[[str], Facts], case: str, words: str) -> None:
    found = interpret(LANES)[case]
    assert found is not None, "nothing was raised"
    assert found["reason"] == "race"
    assert words in found["message"]


@pytest.mark.parametrize(
    "case", ["load, store True", "store, store True", "store, atomic True", "scalar", "in place"]
)
def test_lanes_that_keep_apart_do_not(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(LANES)[case] is None


def test_programs_reach_their_atomics_in_any_order(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ORDERS)
    assert (facts["in order"], facts["by lot"], facts["total"]) == (True, False, True)


def test_a_reduction_needs_a_combination_that_commutes(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ORDERS)
    assert facts["reduced"] == [False, True]
    assert facts["reduced by lot"] == [False, True]


def test_ties_break_to_the_left_only_where_asked(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ORDERS)
    assert facts["left"] == 0
    assert facts["any"] != 0


def test_a_reshape_that_may_reorder_does(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ORDERS)
    assert facts["kept"]
    assert facts["reordered"] == [False, True]


def test_a_product_and_a_sum_may_round_once(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ORDERS)
    assert facts["rounded twice"] == 0
    assert 0 < facts["rounded once"] < 1e-6


def test_counters_of_loops_are_32_bit_integers(interpret: Callable[[str], Facts]) -> None:
    wrapped = (-5 * 10**9 + 2**31) % 2**32 - 2**31
    assert interpret(NUMBERS)["counters"] == [-2, -1, wrapped, -2, 1]


def test_approximate_instructions_are_no_better_than_stated(interpret: Callable[[str], Facts]) -> None:
    assert 2.0**-13 < interpret(NUMBERS)["tanh"] <= 2.0**-10.9


def test_a_float16_accumulator_rounds_at_every_step(interpret: Callable[[str], Facts]) -> None:
    found, once = interpret(NUMBERS)["half"]
    assert found > 2 * once


def test_a_tuner_leaves_what_its_benchmark_added(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(TUNED)
    assert facts["added"] == [128.0, 64.0, 64.0]
    assert facts["launches"] == 3
