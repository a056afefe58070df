"""What a GPU resolves at random, and what a compiler takes on trust, is seen by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]


LANES = """
@triton.jit
def reversed_through(x, s, o, B: tl.constexpr, BARRIER: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    back = tl.program_id(0) * B + (B - 1 - tl.arange(0, B))
    tl.store(s + at, tl.load(x + at))
    if BARRIER:
        tl.debug_barrier()
    tl.store(o + at, tl.load(s + back))

@triton.jit
def same_lane(x, s, o, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(s + at, tl.load(x + at))
    tl.store(o + at, tl.load(s + at) * 2)

@triton.jit
def scalar_back(s, o):
    tl.store(s, 3.0)
    tl.store(o, tl.load(s))

@triton.jit
def two_lanes_one_element(o, B: tl.constexpr, EQUAL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i // 2, tl.where(EQUAL, i // 2, i).to(tl.float32))

@triton.jit
def counted(y, x, t, B: tl.constexpr, AFTER: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(t, 1)
    tl.store(y + i, tl.load(y + i) + tl.load(x + tl.program_id(0) * B + i))
    if AFTER:
        tl.atomic_add(t, 1)

@triton.jit
def locked(y, x, lock, B: tl.constexpr):
    i = tl.arange(0, B)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y + i, tl.load(y + i) + tl.load(x + tl.program_id(0) * B + i))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)

@triton.jit
def ticket(x, parts, t, o, B: tl.constexpr, P: tl.constexpr, LAST: tl.constexpr):
    p = tl.program_id(0)
    tl.store(parts + p, tl.sum(tl.load(x + p * B + tl.arange(0, B))))
    if tl.atomic_add(t, 1) == LAST:
        tl.store(o, tl.sum(tl.load(parts + tl.arange(0, P))))

x, s, o = torch.randn(64), torch.empty(64), torch.empty(64)
out["crossing"] = fault(lambda: reversed_through[(4,)](x, s, o, 16, False))
out["behind a barrier"] = fault(lambda: reversed_through[(4,)](x, s, o, 16, True))
out["behind a barrier value"] = error(o, x.view(4, 16).flip(1).flatten())
out["same lane"] = fault(lambda: same_lane[(4,)](x, s, o, 16))
out["scalar"] = fault(lambda: scalar_back[(1,)](s, o))
out["two lanes"] = fault(lambda: two_lanes_one_element[(1,)](o, 16, False))
out["two equal lanes"] = fault(lambda: two_lanes_one_element[(1,)](o, 16, True))

def integers(n=1):
    return torch.zeros(n, dtype=torch.int32)

out["behind an atomic"] = fault(lambda: counted[(4,)](torch.zeros(16), x, integers(), 16, False))
out["between atomics"] = [
    fault(lambda: counted[(4,)](torch.zeros(16), x, integers(), 16, True)) for _ in range(6)
]
values = []
for _ in range(4):
    y = torch.zeros(16)
    out["locked"] = fault(lambda: locked[(4,)](y, x, integers(), 16))
    values.append(error(y, x.view(4, 16).sum(0)))
out["locked value"] = max(values)
for _ in range(4):
    total = torch.empty(1)
    out["last ticket"] = fault(lambda: ticket[(4,)](x, torch.empty(4), integers(), total, 16, 4, 3))
out["last ticket value"] = error(total, x.sum())
out["too early"] = fault(lambda: ticket[(4,)](x, torch.empty(4), integers(), total, 16, 4, 1))
"""


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            "crossing",
            "loads what another of its lanes stores, with no tl.debug_barrier() between",
        ),
        ("scalar", "loads what another of its lanes stores"),
        ("two lanes", "lanes of one store write different values to argument 'o', element offset 0"),
        ("behind an atomic", "no atomic that the one releases and the other acquires lies between"),
        ("too early", "argument 'parts'"),
    ],
)
def test_races_of_lanes_and_behind_atomics(interpret: Callable[[str], Facts], case: str, words: str) -> None:
    found = interpret(LANES)[case]
    assert found is not None, "nothing was raised"
    assert found["reason"] == "race"
    assert words in found["message"]


@pytest.mark.parametrize(
    "case", ["behind a barrier", "same lane", "two equal lanes", "locked", "last ticket"]
)
def test_what_is_ordered_is_no_race(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(LANES)[case] is None


def test_programs_that_look_ordered_take_turns(interpret: Callable[[str], Facts]) -> None:
    """Atomics before and after look like order in one sequence of programs, and are none in another."""
    first, *later = interpret(LANES)["between atomics"]
    assert first is None
    assert all(found is not None and found["reason"] == "race" for found in later)


def test_values_of_ordered_kernels(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LANES)
    assert facts["behind a barrier value"] == 0
    assert max(facts["locked value"], facts["last ticket value"]) < 1e-5


TRUST = """
@triton.jit
def hinted(x, o, start, B: tl.constexpr, HINT: tl.constexpr):
    i = start + tl.arange(0, B)
    if HINT == 1:
        i = tl.multiple_of(i, 16)
    if HINT == 2:
        i = tl.max_contiguous(i * 2 // 2 + (i // 4) * 0 + tl.where(i % 8 == 7, 0, 0) + i % 1, 16)
    if HINT == 3:
        i = tl.max_contiguous(i ^ 1, 8)
    if HINT == 4:
        tl.assume(start == 0)
    tl.store(o + tl.arange(0, B), tl.load(x + i))

@triton.jit
def masked(x, o, n, B: tl.constexpr, LARGEST: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(o, tl.max(v) if LARGEST else tl.sum(v))

@triton.jit
def unused_lanes(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.jit
def by_integer(address, o, shift, B: tl.constexpr):
    i = tl.arange(0, B)
    p = address.to(tl.pointer_type(tl.float32))
    tl.store(o + i, tl.load(p + i + shift))

@triton.autotune([triton.Config({"K": 1}), triton.Config({"K": 2}), triton.Config({"K": 3})], key=["n"])
@triton.jit
def tuned(o, n, K: tl.constexpr):
    tl.store(o, K)

x, o = torch.randn(64), torch.empty(64)
for name, start, hint in (("multiple", 1, 1), ("true multiple", 16, 1), ("true run", 0, 2), ("run", 0, 3),
                          ("assumed", 4, 4), ("rightly assumed", 0, 4)):
    out[name] = fault(lambda: hinted[(1,)](x, o, start, 32, hint))
positive = torch.rand(16)
def sums(largest):
    found = torch.empty(1)
    masked[(1,)](positive, found, 10, 16, largest)
    return abs(float(found) - float(positive[:10].max() if largest else positive[:10].sum())) < 1e-3
out["sums"] = [sums(False) for _ in range(8)]
out["maxima"] = [sums(True) for _ in range(40)]
whole = torch.zeros(16)
unused_lanes[(1,)](positive, whole, 10, 16)
out["unused"] = error(whole[:10], positive[:10] + 1)
out["integer"] = fault(lambda: by_integer[(1,)](x.data_ptr(), o, 0, 64))
out["integer value"] = error(o, x)
out["integer beyond"] = fault(lambda: by_integer[(1,)](x.data_ptr(), o, 1, 64))
out["no tensor's"] = fault(lambda: by_integer[(1,)](1 << 44, o, 0, 64))

o, chosen = torch.empty(1), session.configurations
taken = []
for place in (0, 1, 2, 0):
    chosen.take(place)
    tuned[(1,)](o, 8)
    taken.append(int(o))
out["configurations"] = taken
out["offered"] = chosen.most
"""


@pytest.mark.parametrize("case", ["multiple", "run", "assumed"])
def test_a_false_hint_is_a_fault(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(TRUST)[case]["reason"] == "hint"


@pytest.mark.parametrize("case", ["true multiple", "true run", "rightly assumed"])
def test_a_true_hint_passes(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(TRUST)[case] is None


def test_masked_lanes_hold_anything(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(TRUST)
    assert not any(facts["sums"])
    assert not all(facts["maxima"]), "a maximum passes over NaN, not over every garbage"
    assert facts["unused"] == 0


def test_pointers_made_of_integers_are_checked(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(TRUST)
    assert facts["integer"] is None
    assert facts["integer value"] == 0
    assert "beyond the end of its tensor" in facts["integer beyond"]["message"]
    assert "outside every tensor" in facts["no tensor's"]["message"]


def test_every_configuration_can_be_asked_for(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(TRUST)
    assert facts["configurations"] == [1, 2, 3, 1]
    assert facts["offered"] == 3


ONE_ELEMENT = """
@triton.jit
def one(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B) + n
    tl.store(o + tl.arange(0, B), tl.load(x + i, mask=i < n, other=0.0))
    tl.store(o + 1, tl.load(x + n, mask=n < 0, other=0.0))
    assert n > 7

o = torch.full((2,), 7.0)
one[(1,)](torch.ones(4), o, 4, 1)
out["filled"] = o.tolist()
"""


def test_a_masked_load_of_one_element_holds_what_it_was_given(interpret: Callable[[str], Facts]) -> None:
    """A zero is something; and an ``assert`` checks nothing on a GPU."""
    assert interpret(ONE_ELEMENT)["filled"] == [0.0, 0.0]
