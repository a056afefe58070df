"""Every access outside a tensor is a fault that names kernel, argument, offset and program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]


BOUNDS = """
@triton.jit
def shifted_load(x, o, shift, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i + shift))

@triton.jit
def unmasked_store(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n, other=0.0))

@triton.jit
def wild_atomic(o, at):
    tl.atomic_add(o + at, 1.0)

@triton.jit
def wild_cas(o, at):
    tl.atomic_cas(o + at, 0, 1)

@triton.jit
def tile(x, o, stride, R: tl.constexpr, C: tl.constexpr, CHECK: tl.constexpr):
    r = tl.arange(0, R)[:, None]
    c = tl.arange(0, C)[None, :]
    if CHECK:
        v = tl.load(x + r * stride + c, mask=(r < 3) & (c < 5), other=0.0)
    else:
        v = tl.load(x + r * stride + c)
    tl.store(o + r * C + c, v)

@triton.jit
def through_descriptor(x, o, rows, cols, R: tl.constexpr, C: tl.constexpr):
    d = tl.make_tensor_descriptor(x, shape=[rows, cols], strides=[cols, 1], block_shape=[R, C])
    v = d.load([tl.program_id(0) * R, 0])
    tl.store(o + tl.program_id(0) * R * C + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :], v)

@triton.jit
def host_descriptor(src, dst, R: tl.constexpr):
    dst.store([tl.program_id(0) * R, 0], src.load([tl.program_id(0) * R, 0]) * 2)

@triton.jit
def pick(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    p = tl.where(i % 2 == 0, x + i, y + i)
    tl.store(o + i, tl.load(p))

@triton.jit
def in_device_function(x, i):
    return tl.load(x + i)

@triton.jit
def nested(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, in_device_function(x, i + 1))

@triton.jit
def counted_mask(x, o, n, H, B: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n
    total = tl.zeros((B,), tl.float32)
    for step in range(3):
        row = step - 1
        total += tl.load(x + i + row * 8, mask=inside & ((row >= 0) & (row < H)), other=0.0)
    tl.store(o + i, total, mask=inside)

@triton.jit
def block_condition(x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    if v > 0:
        tl.store(x, 1.0)

x, o = torch.randn(64), torch.empty(64)
out["inside"] = fault(lambda: shifted_load[(4,)](x, o, 0, 16))
out["right values"] = error(o, x)
out["load"] = fault(lambda: shifted_load[(4,)](x, o, 3, 16))
out["negative"] = fault(lambda: shifted_load[(4,)](x, o, -2, 16))
out["far"] = fault(lambda: shifted_load[(4,)](x, o, 2**30, 16))
out["store"] = fault(lambda: unmasked_store[(4,)](torch.randn(50), torch.empty(50), 50, 16))
out["atomic"] = fault(lambda: wild_atomic[(1,)](torch.zeros(4), 4))
out["cas"] = fault(lambda: wild_cas[(1,)](torch.zeros(4, dtype=torch.int32), -1))
out["masked tile"] = fault(lambda: tile[(1,)](torch.randn(3, 5), torch.empty(4, 8), 5, 4, 8, True))
out["tile"] = fault(lambda: tile[(1,)](torch.randn(3, 5), torch.empty(4, 8), 5, 4, 8, False))
out["nested"] = fault(lambda: nested[(1,)](torch.randn(16), torch.empty(16), 16))
out["condition"] = fault(lambda: block_condition[(1,)](torch.randn(16), 16))

big = torch.arange(100.0)
view, o = big[40:60], torch.empty(16)
out["neighbour through a view"] = fault(lambda: shifted_load[(1,)](view, o, 10, 16))
out["view values"] = error(o, big[50:66])
out["view past storage"] = fault(lambda: shifted_load[(1,)](view, o, 50, 16))
out["view before storage"] = fault(lambda: shifted_load[(1,)](view, o, -41, 16))

x, o = torch.randn(12, 16), torch.empty(16, 16)
triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
out["descriptor"] = fault(lambda: through_descriptor[(2,)](x, o, 12, 16, 8, 16))
out["descriptor values"] = [error(o[:12], x), float(o[12:].abs().max())]
out["descriptor lies"] = fault(lambda: through_descriptor[(2,)](x, o, 16, 16, 8, 16))

from triton.tools.tensor_descriptor import TensorDescriptor
src, dst = torch.randn(16, 16).to(torch.bfloat16), torch.zeros(16, 16, dtype=torch.bfloat16)
describe = lambda t: TensorDescriptor.from_tensor(t, [8, 16])
out["host descriptor"] = fault(lambda: host_descriptor[(2,)](describe(src), describe(dst), 8))
out["host descriptor values"] = error(dst, src * 2)
liar = TensorDescriptor(torch.randn(8, 16), [16, 16], [16, 1], [8, 16])
out["host descriptor lies"] = fault(lambda: host_descriptor[(2,)](liar, describe(torch.zeros(16, 16)), 8))

x, o = torch.randn(2, 8), torch.empty(8)
out["mask by a loop's counter"] = fault(lambda: counted_mask[(1,)](x, o, 7, 2, 8))
out["masked sums"] = error(o[:7], x.sum(0)[:7])

x, y, o = torch.randn(8), torch.randn(8), torch.empty(8)
out["two arguments in one load"] = fault(lambda: pick[(1,)](x, y, o, 8))
out["picked"] = error(o, torch.where(torch.arange(8) % 2 == 0, x, y))
out["one of two too short"] = fault(lambda: pick[(1,)](x, y[:1].clone(), o, 8))
out["empty"] = fault(lambda: shifted_load[(0,)](torch.empty(0), torch.empty(0), 0, 16))
"""


@pytest.mark.parametrize(
    ("case", "argument", "words"),
    [
        ("load", "x", "program (3, 0, 0): load"),
        ("negative", "x", "element offset -2 "),
        ("far", "x", f"element offset {2**30} "),
        ("store", "o", "program (3, 0, 0): store"),
        ("atomic", "o", "atomic out of bounds of argument 'o' at element offset 4 "),
        ("cas", "o", "element offset -1 "),
        ("tile", "x", "element offset 15 "),
        ("nested", "x", "element offset 16 "),
        ("view past storage", "x", "valid: -40 to 59"),
        ("view before storage", "x", "element offset -41 "),
        ("descriptor lies", "x", "program (1, 0, 0): load"),
        ("host descriptor lies", "src", "program (1, 0, 0): load"),
        ("one of two too short", "y", "load"),
    ],
)
def test_out_of_bounds(interpret: Callable[[str], Facts], case: str, argument: str, words: str) -> None:
    found = interpret(BOUNDS)[case]
    assert found is not None, "nothing was raised"
    assert found["reason"] == "out_of_bounds"
    assert f"argument {argument!r}" in found["message"]
    assert words in found["message"]
    assert found["message"].startswith("kernel ")


@pytest.mark.parametrize(
    "case",
    ["inside", "masked tile", "mask by a loop's counter", "neighbour through a view", "descriptor",
     "host descriptor", "empty", "two arguments in one load"],
)  # fmt: skip
def test_legitimate_accesses_pass(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(BOUNDS)[case] is None


def test_translated_accesses_reach_the_right_memory(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(BOUNDS)
    assert facts["right values"] == facts["view values"] == facts["picked"] == 0
    assert facts["masked sums"] < 1e-6
    assert facts["descriptor values"] == [0, 0]
    assert facts["host descriptor values"] == 0


def test_a_block_is_no_condition(interpret: Callable[[str], Facts]) -> None:
    assert interpret(BOUNDS)["condition"]["reason"] == "unsupported"
