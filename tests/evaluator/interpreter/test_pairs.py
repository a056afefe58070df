"""Accesses that nothing orders on a GPU, whatever order the interpreter takes; and twins that are ordered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]

LOOPS = """
@triton.jit
def counts(x, o, FROM, TO, step, FIXED: tl.constexpr):
    total = 0.0
    if FIXED:
        for i in range(FROM, TO, -1):
            total += tl.load(x + i)
    else:
        for i in range(FROM, TO, step):
            total += tl.load(x + i)
    tl.store(o, total)

@triton.jit
def states(x, w, h, T, STAGES: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    weight = tl.load(w + i)
    for t in tl.range(T, num_stages=STAGES):
        before = tl.load(h + t * 256 + i)
        tl.store(h + (t + 1) * 256 + i, tl.dot(before, weight) + tl.load(x + t * 256 + i))

@triton.jit
def product(a, b):
    return tl.dot(a, b)

@triton.jit
def states_by_helper(x, w, h, T):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    weight = tl.load(w + i)
    for t in range(T):
        before = tl.load(h + t * 256 + i)
        tl.store(h + (t + 1) * 256 + i, product(before, weight) + tl.load(x + t * 256 + i))

@triton.jit
def sums_of_products(x, w, h, T):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    for t in range(T):
        added = tl.dot(tl.load(x + t * 256 + i), tl.load(w + i))
        before = tl.load(h + t * 256 + i)
        tl.store(h + (t + 1) * 256 + i, before + added)

@triton.jit
def summed_in_memory(x, w, h, T):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    for t in range(T):
        before = tl.load(h + i)
        tl.store(h + i, tl.dot(tl.load(x + t * 256 + i), tl.load(w + i), before))

@triton.jit
def running(x, o, done, R, ATOMIC: tl.constexpr):
    c = tl.arange(0, 16)
    for r in tl.range(1, R, 1, 3):
        before = tl.load(o + (r - 1) * 16 + c)
        v = before + tl.load(x + r * 16 + c)
        if ATOMIC:
            tl.atomic_add(o + r * 16 + c, v, sem="relaxed")
        else:
            tl.store(o + r * 16 + c, v)
            tl.atomic_add(done, 1)

@triton.jit
def columns(x, o, R):
    c = tl.arange(0, 16)
    acc = tl.zeros([16], tl.float32)
    for r in tl.range(0, R, 1, 3):
        acc += tl.load(x + r * 16 + c)
    tl.store(o + c, acc)

@triton.jit
def flattened(x, o, R, FLAT: tl.constexpr):
    c = tl.arange(0, 16)
    for r in tl.range(1, R, num_stages=3, flatten=FLAT):
        acc = tl.zeros([16], tl.float32)
        for j in range(0, 2):
            acc += tl.load(o + (r - 1) * 16 + c) + tl.load(x + (r - j) * 16 + c)
        tl.store(o + r * 16 + c, acc)

x, w, h = torch.randn(8, 16, 16), torch.randn(16, 16), torch.zeros(9, 16, 16)
o, done = torch.zeros(8, 16), torch.zeros(1, dtype=torch.int32)
out["a step of the launch"] = fault(lambda: counts[(1,)](x, o, 7, -1, -1, False))
out["a constant step"] = fault(lambda: counts[(1,)](x, o, 7, -1, 2, True))
out["a step forwards"] = fault(lambda: counts[(1,)](x, o, 0, 8, 2, False))
out["a product of the state"] = fault(lambda: states[(1,)](x, w, h, 8, None))
out["two stages of the launch"] = fault(lambda: states[(1,)](x, w, h, 8, None, num_stages=2))
out["one stage of the launch"] = fault(lambda: states[(1,)](x, w, h, 8, None, num_stages=1))
out["one stage of the loop"] = fault(lambda: states[(1,)](x, w, h, 8, 1))
out["a product in a function"] = fault(lambda: states_by_helper[(1,)](x, w, h, 8))
out["a product beside the state"] = fault(lambda: sums_of_products[(1,)](x, w, h, 8))
out["a sum of products"] = fault(lambda: summed_in_memory[(1,)](x, w, h, 8))
out["an atomic in the loop"] = fault(lambda: running[(1,)](x, o, done, 8, False))
out["changed atomically"] = fault(lambda: running[(1,)](x, o, done, 8, True))
out["stages by position"] = fault(lambda: columns[(1,)](x, o, 8))
out["one loop of two"] = fault(lambda: flattened[(1,)](x, o, 8, True))
out["two loops"] = fault(lambda: flattened[(1,)](x, o, 8, False))
"""

ATOMICS = """
@triton.jit
def last_loads(x, acc, ticket, o, SEM: tl.constexpr):
    c = tl.arange(0, 16)
    tl.atomic_add(acc + c, tl.load(x + tl.program_id(0) * 16 + c), sem="relaxed")
    if tl.atomic_add(ticket, 1, sem=SEM) == tl.num_programs(0) - 1:
        tl.store(o + c, tl.load(acc + c))

@triton.jit
def parts(x, part, ticket, o, SEM: tl.constexpr, P: tl.constexpr):
    p = tl.program_id(0)
    tl.store(part + p, tl.sum(tl.load(x + p * 16 + tl.arange(0, 16))))
    if tl.atomic_add(ticket, 1, sem=SEM) == P - 1:
        total = 0.0
        for i in range(P):
            total += tl.atomic_add(part + i, 0.0, sem="relaxed")
        tl.store(o, total)

@triton.jit
def looks_first(acc, o):
    p = tl.program_id(0)
    tl.store(o + p, tl.load(acc))
    tl.atomic_add(acc, 1.0)

@triton.jit
def own_sum(x, total, o, SEM: tl.constexpr):
    c = tl.arange(0, 16)
    v = tl.load(x + tl.program_id(0) * 16 + c)
    tl.atomic_add(total + tl.program_id(0), tl.sum(v), sem=SEM)
    tl.store(o + tl.program_id(0) * 16 + c, v / tl.load(total + tl.program_id(0)))

@triton.jit
def own_start(x, total, o, SEM: tl.constexpr):
    c = tl.arange(0, 16)
    row = total + tl.program_id(0) * 16
    tl.store(row + c, tl.zeros([16], tl.float32))
    tl.atomic_add(row + 15, 1.0, sem=SEM)

@triton.jit
def last_cleans(x, total, ticket, o, EARLY: tl.constexpr):
    c = tl.arange(0, 16)
    p = tl.program_id(0)
    arrived = 0
    if EARLY:
        arrived = tl.atomic_add(ticket, 1)
    tl.store(o + p * 16 + c, tl.load(total + c))
    if not EARLY:
        arrived = tl.atomic_add(ticket, 1)
    if arrived == tl.num_programs(0) - 1:
        tl.store(total + c, tl.zeros([16], tl.float32))

@triton.jit
def swapped(x, s, o):
    c = tl.arange(0, 16)
    tl.store(s + c, tl.load(x + c))
    tl.debug_barrier()
    tl.store(o + c, tl.load(s + 15 - c))

x, acc, o = torch.randn(8, 16), torch.zeros(16), torch.zeros(8, 16)
def ticket():
    return torch.zeros(1, dtype=torch.int32)
def again(call):
    found = None
    for _ in range(4):
        found = found or fault(call)
    return found
out["relaxed ticket"] = fault(lambda: last_loads[(8,)](x, acc, ticket(), o, "relaxed"))
out["ordered ticket"] = again(lambda: last_loads[(8,)](x, acc, ticket(), o, "acq_rel"))
out["relaxed parts"] = fault(lambda: parts[(8,)](x, acc, ticket(), o, "relaxed", 8))
out["ordered parts"] = again(lambda: parts[(8,)](x, acc, ticket(), o, "acq_rel", 8))
out["looks first"] = fault(lambda: looks_first[(8,)](acc, o))
for sem in ("release", "relaxed", "acquire", "acq_rel"):
    out["own sum " + sem] = fault(lambda: own_sum[(8,)](x, torch.zeros(8), o, sem))
    out["own start " + sem] = fault(lambda: own_start[(8,)](x, torch.zeros(8, 16), o, sem))
out["cleans early"] = fault(lambda: last_cleans[(8,)](x, acc, ticket(), o, True))
out["cleans late"] = again(lambda: last_cleans[(8,)](x, acc, ticket(), o, False))
out["two blocks"] = fault(lambda: swapped[(1,)](x, acc, o, num_ctas=2))
out["one block"] = fault(lambda: swapped[(1,)](x, acc, o, num_ctas=1))
"""

COPIES = """
triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))

@triton.jit
def stored_then_copied(x, s, o, THREADS: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    there = tl.make_tensor_descriptor(s, [16, 16], [16, 1], [16, 16])
    if THREADS:
        tl.store(s + i, tl.load(x + i))
    else:
        there.store([0, 0], tl.load(x + i))
    tl.debug_barrier()
    tl.store(o + i, there.load([0, 0]))

@triton.jit
def copied(x, o):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(o + i, tl.make_tensor_descriptor(x, [16, 16], [16, 1], [16, 16]).load([0, 0]))

x, s, o = torch.randn(16, 16), torch.zeros(16, 16), torch.zeros(16, 16)
out["by threads"] = fault(lambda: stored_then_copied[(1,)](x, s, o, True))
out["by the engine"] = fault(lambda: stored_then_copied[(1,)](x, s, o, False))
out["in another launch"] = fault(lambda: (copied[(1,)](x, s), copied[(1,)](s, o)))
"""


def test_a_loop_that_counts_down_by_an_argument_is_undefined(interpret: Callable[[str], Facts]) -> None:
    found = interpret(LOOPS)
    assert found["a step of the launch"]["reason"] == "undefined"
    assert found["a constant step"] is None
    assert found["a step forwards"] is None


@pytest.mark.parametrize(
    "case",
    [
        "a product of the state", "two stages of the launch", "a product in a function",
        "an atomic in the loop", "changed atomically", "one loop of two",
    ],
)  # fmt: skip
def test_loads_that_run_ahead_are_a_race(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(LOOPS)[case]["reason"] == "race"
    assert "num_stages" in interpret(LOOPS)[case]["message"]


@pytest.mark.parametrize(
    "case",
    [
        "one stage of the launch", "one stage of the loop", "a product beside the state",
        "a sum of products", "stages by position", "two loops",
    ],
)  # fmt: skip
def test_loops_whose_loads_stay_are_none(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(LOOPS)[case] is None


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("relaxed ticket", "loads what several other programs changes atomically"),
        ("relaxed parts", "changes atomically what"),
        ("looks first", "what program (0, 0, 0)"),
        ("own sum release", "loads what another of its lanes changes atomically"),
        ("own sum relaxed", "loads what another of its lanes changes atomically"),
        ("own start acquire", "changes atomically what another of its lanes stores"),
        ("own start relaxed", "changes atomically what another of its lanes stores"),
        ("cleans early", "stores what several other programs loads"),
        ("two blocks", "num_ctas=2"),
    ],
)
def test_what_no_atomic_or_barrier_orders_is_a_race(
    interpret: Callable[[str], Facts], case: str, words: str
) -> None:
    found = interpret(ATOMICS)[case]
    assert found["reason"] == "race"
    assert words in found["message"]


@pytest.mark.parametrize(
    "case",
    [
        "ordered ticket", "ordered parts", "own sum acquire", "own sum acq_rel", "own start release",
        "own start acq_rel", "cleans late", "one block",
    ],
)  # fmt: skip
def test_what_they_order_is_none(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(ATOMICS)[case] is None


def test_the_copy_engine_sees_no_store_of_its_launch(interpret: Callable[[str], Facts]) -> None:
    found = interpret(COPIES)
    assert found["by threads"]["reason"] == "race"
    assert "copy engine" in found["by threads"]["message"]
    assert found["by the engine"] is None
    assert found["in another launch"] is None
