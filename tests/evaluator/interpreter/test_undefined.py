"""A value that the language leaves undefined differs between programs; unused, it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]

VALUES = """
@triton.jit
def saturates(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    n = v.to(tl.int32)
    tl.store(o + tl.program_id(0) * 16 + i, n if USED else tl.where(tl.abs(v) < 1e9, n, 0))

@triton.jit
def unsigned(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    n = v.to(tl.uint32)
    kept = n if USED else tl.where((v >= 0) & (v < 1e9), n, 0)
    tl.store(o + tl.program_id(0) * 16 + i, kept.to(tl.int32, bitcast=True))

@triton.jit
def divides(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    d = i % 4
    q = (i + 7) // d
    tl.store(o + tl.program_id(0) * 16 + i, q if USED else tl.where(d == 0, -5, q))

@triton.jit
def remains(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    d = i % 4
    q = (i + 7) % d
    tl.store(o + tl.program_id(0) * 16 + i, q if USED else tl.where(d == 0, -5, q))

@triton.jit
def divides_least(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    least = tl.where(i == 3, -2147483648, i)
    q = least // tl.where(i < 8, -1, 1)
    tl.store(o + tl.program_id(0) * 16 + i, q if USED else tl.where(i == 3, 0, q))

@triton.jit
def shifts(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    s = (i + 1) << (i + 24)
    tl.store(o + tl.program_id(0) * 16 + i, s if USED else tl.where(i + 24 < 32, s, 0))

@triton.jit
def shifts_back(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    s = (i - 100) >> (i - 4)
    tl.store(o + tl.program_id(0) * 16 + i, s if USED else tl.where(i >= 4, s, 0))

@triton.jit
def gathers(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    g = tl.gather(i, i - 1, 0)
    tl.store(o + tl.program_id(0) * 16 + i, g if USED else tl.where(i > 0, g, 0))

@triton.jit
def counts(x, o, USED: tl.constexpr):
    i = tl.arange(0, 16)
    h = tl.histogram(i * 2, 16, mask=(i < 8) | USED)
    tl.store(o + tl.program_id(0) * 16 + i, h)

x = torch.tensor([-3.5, -1.0, 0.0, 1.5, 3e9, -3e9, 1e20, 7.0] * 2)
for kernel in (saturates, unsigned, divides, remains, divides_least, shifts, shifts_back, gathers, counts):
    for used in (False, True):
        o = torch.zeros(32, 16, dtype=torch.int32)
        kernel[(32,)](x, o, used)
        out[f"{kernel.fn.__name__} {used}"] = len({tuple(row) for row in o.tolist()})

o = torch.zeros(1, 16, dtype=torch.int32)
saturates[(1,)](x * 0 + 2.0**30, o, True)
unsigned[(1,)](x * 0 + 2.0**31, o, True)
out["limits"] = o.unique().tolist()
"""

ADDRESSES = """
@triton.jit
def address(x, o):
    tl.store(o, x.to(tl.int64))
    tl.store(o + 1, (x + 3).to(tl.int64) - x.to(tl.int64))

@triton.jit
def there_and_back(x, o):
    i = tl.arange(0, 16)
    p = (x + i).to(tl.int64) + 4
    tl.store(o + i, tl.load(p.to(tl.pointer_type(tl.float32)), mask=i < 15, other=0.0))

@triton.jit
def in_pairs(x, o):
    i = tl.arange(0, 8)
    pairs = tl.load(x.to(tl.pointer_type(tl.int64)) + i)
    tl.store(o.to(tl.pointer_type(tl.int64)) + i, pairs)

@triton.jit
def in_odd_lanes(x, o):
    i = tl.arange(0, 8)
    bytes = x.to(tl.pointer_type(tl.int8)) + 4 * i
    tl.store(o + i, tl.load(bytes.to(tl.pointer_type(tl.int64))))

x, o, found = torch.randn(32), torch.zeros(32), torch.zeros(2, dtype=torch.int64)
seen = []
for _ in range(8):
    address[(1,)](x, found)
    seen.append(found.tolist())
out["highest"] = max(number for number, _ in seen)
out["different"] = len({number for number, _ in seen})
out["distances"] = sorted({distance for _, distance in seen})
out["low bits"] = sorted({(number - x.data_ptr()) % 4096 for number, _ in seen})
there_and_back[(1,)](x, o)
out["there and back"] = error(o[:15], x[1:16])
out["aligned"] = fault(lambda: in_pairs[(1,)](x, o))
out["misaligned"] = fault(lambda: in_pairs[(1,)](x[1:], o))
out["misaligned lanes"] = fault(lambda: in_odd_lanes[(1,)](x, torch.zeros(8, dtype=torch.int64)))
"""

FLOATS = """
from egg.evaluator.interpreter.session import by_lot

@triton.jit
def bits_of_nan(x, o):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    tl.store(o + i, ((v - v) / (v - v)).to(tl.int32, bitcast=True))
    tl.store(o + 16 + i, tl.load(x + 16 + i).to(tl.int32, bitcast=True))

@triton.jit
def flushes(x, o):
    tl.store(o, tl.exp2(tl.load(x)))
    tl.store(o + 1, tl.sqrt(tl.load(x + 1)))
    tl.store(o + 2, tl.rsqrt(tl.load(x + 1)))
    tl.store(o + 3, tl.sqrt_rn(tl.load(x + 1)))
    tl.store(o + 4, tl.load(x + 2) % tl.load(x + 3))
    tl.store(o + 5, tl.load(x + 4) % tl.load(x + 3))

@triton.jit
def powers_only(a, n, b, m):
    return tl.where((m & (m - 1)) != 0, a, a + b), n + m

@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d

@triton.jit
def scans(x, o, REVERSE: tl.constexpr):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    s, n = tl.associative_scan((v, tl.full((64,), 1, tl.int32)), 0, powers_only)
    tl.store(o + i, s)
    a, b = tl.associative_scan((tl.full((64,), 0.5, tl.float32), v), 0, affine, reverse=REVERSE)
    tl.store(o + 64 + i, b)

x = torch.randn(32)
x[16:] = torch.tensor([0x7FC00001, -0x3FFFFF], dtype=torch.int32).view(torch.float32).repeat(8)
o = torch.zeros(32, dtype=torch.int32)
for _ in range(2):
    bits_of_nan[(1,)](x, o)
out["computed NaN"] = o[:16].unique().tolist()
out["loaded NaN"] = torch.equal(o[16:], x[16:].view(torch.int32))

o = torch.zeros(6)
flushes[(1,)](torch.tensor([-140.0, 1e-40, 1e10, 0.75, 7.9]), o)
out["flushed"] = o.tolist()

x, o = torch.randn(64), torch.zeros(128)
out["not associative"], out["associative"] = [], []
for seed in (None, 1, 2, 3):
    for reverse in (False, True):
        if seed is None:
            scans[(1,)](x, o, reverse)
        else:
            with by_lot(seed):
                scans[(1,)](x, o, reverse)
        values, want = x.flip(0) if reverse else x, [0.0]
        for v in values.tolist():
            want.append(want[-1] * 0.5 + v)
        expected = torch.tensor(want[1:])
        out["associative"].append(error(o[64:], expected.flip(0) if reverse else expected))
        out["not associative"].append(error(o[:64], x.cumsum(0)))
"""

OPERATIONS = (
    "saturates",
    "unsigned",
    "divides",
    "remains",
    "divides_least",
    "shifts",
    "shifts_back",
    "gathers",
    "counts",
)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_undefined_values_differ_between_programs_where_they_are_used(
    interpret: Callable[[str], Facts], operation: str
) -> None:
    facts = interpret(VALUES)
    assert facts[f"{operation} True"] > 1
    assert facts[f"{operation} False"] == 1


def test_numbers_that_the_type_holds_are_exact(interpret: Callable[[str], Facts]) -> None:
    assert interpret(VALUES)["limits"] == [-(2**31)]


def test_an_address_as_a_number_is_somewhere_else_at_every_launch(
    interpret: Callable[[str], Facts],
) -> None:
    facts = interpret(ADDRESSES)
    assert facts["highest"] < 2**47
    assert facts["different"] == 8
    assert facts["distances"] == [12]
    assert facts["low bits"] == [0]
    assert facts["there and back"] == 0


def test_an_access_that_is_not_aligned_is_a_fault(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(ADDRESSES)
    assert facts["aligned"] is None
    assert facts["misaligned"]["reason"] == "undefined"
    assert "'x'" in facts["misaligned"]["message"]
    assert facts["misaligned lanes"]["reason"] == "undefined"


def test_the_nan_of_arithmetic_has_the_bits_that_a_gpu_gives_it(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(FLOATS)
    assert facts["computed NaN"] == [0x7FFFFFFF]
    assert facts["loaded NaN"] is True


def test_instructions_that_flush_give_zero_for_subnormal_numbers(interpret: Callable[[str], Facts]) -> None:
    power, root, inverse, rounded, far, near = interpret(FLOATS)["flushed"]
    assert (power, root, inverse) == (0, 0, float("inf"))
    assert rounded == pytest.approx(1e-20, rel=1e-3)
    assert abs(far) > 1, "a GPU has no exact remainder of 1e10"
    assert near == pytest.approx(0.4, abs=1e-5)


def test_a_scan_is_associated_in_several_ways(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(FLOATS)
    assert max(facts["associative"]) < 1e-5
    assert max(facts["not associative"]) > 0.1
