"""Kernels that must compute the right thing in the mended interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Facts = dict[str, Any]


NUMERICS = """
@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

@triton.jit
def bf16_mix(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    c = tl.where(a > b, a * b - a, tl.maximum(a, b).to(tl.bfloat16)) + (-a) + tl.abs(b) * 0.1
    tl.store(o + i, c)

@triton.jit
def larger_of_one(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x)
    b = tl.load(y + i)
    tl.store(o + i, tl.where((a > b) | (a != a), a, b))

@triton.jit
def bf16_casts(x, i32, f16, f32, back, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(i32 + i, a.to(tl.int32))
    tl.store(f16 + i, a.to(tl.float16))
    tl.store(f32 + i, a.to(tl.float32))
    tl.store(back + i, tl.load(i32 + i).to(tl.bfloat16) + (a > 0).to(tl.bfloat16))

@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=P)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=mask)

@triton.jit
def softmax(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + r * n + i, mask=m, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + r * n + i, (e / tl.sum(e, axis=0)).to(o.dtype.element_ty), mask=m)

@triton.jit
def layernorm(x, w, o, n, eps, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + r * n + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(m, v - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, axis=0) / n + eps)
    y = d * rstd * tl.load(w + i, mask=m).to(tl.float32)
    tl.store(o + r * n + i, y.to(o.dtype.element_ty), mask=m)

@triton.jit
def welford(m1, q1, n1, m2, q2, n2):
    n = n1 + n2
    d = m2 - m1
    return m1 + d * n2 / n, q1 + q2 + d * d * n1 * n2 / n, n

@triton.jit
def moments(x, o, B: tl.constexpr, R: tl.constexpr):
    v = tl.load(x + tl.arange(0, R)[:, None] * B + tl.arange(0, B)[None, :])
    mean, q, n = tl.reduce((v, tl.zeros_like(v), tl.full(v.shape, 1.0, tl.float32)), 1, welford)
    tl.store(o + tl.arange(0, R), mean)
    tl.store(o + R + tl.arange(0, R), q / n)

@triton.jit
def recur(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2

@triton.jit
def linear_scan(a, b, o, last, B: tl.constexpr):
    i = tl.arange(0, B)
    _, h = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, recur)
    tl.store(o + i, h)
    tl.store(last + i, tl.cumsum(tl.load(b + i), 0, reverse=True))

@triton.jit
def extremes(x, o, k, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o, tl.max(v, axis=0))
    tl.store(o + 1, tl.min(v, axis=0))
    tl.store(k, tl.argmax(v, axis=0))
    tl.store(k + 1, tl.argmin(v, axis=0))

@triton.jit
def runtime_loop(o, n, m):
    total = 0
    for i in range(0, n):
        for j in tl.range(m):
            total += i * j
    while total > 1000:
        total -= 1000
    tl.store(o, total)

@triton.jit
def sort_rows(x, o, B: tl.constexpr):
    tl.store(o + tl.arange(0, B), tl.sort(tl.load(x + tl.arange(0, B))))

@triton.jit
def logic(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = (i >= 2) and (i < n)
    k = (i < 1) or (not m)
    v = max(tl.load(x + i), 0.0)
    tl.store(o + i, tl.where(m, v, -1.0))
    tl.store(o + B + i, tl.where(k, 1.0, 0.0))

@triton.jit
def scalar_args(o, flag, alpha, n):
    if flag and n > 2:
        tl.store(o, alpha * n)

@triton.jit
def fp8_round_trip(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i).to(tl.float8e4nv).to(tl.float32))

dtypes = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
for name, dtype in dtypes.items():
    x, y = torch.randn(2, 1000).to(dtype)
    o = torch.empty_like(x)
    add[(4,)](x, y, o, 1000, B=256)
    out[f"add {name}"] = error(o, x + y)
    a, b = torch.randn(50, 70).to(dtype), torch.randn(70, 40).to(dtype)
    c = torch.empty(50, 40, dtype=torch.float32)
    matmul[(2, 2)](a, b, c, 50, 40, 70, 32, 32, 32, "ieee")
    out[f"matmul {name}"] = error(c, a.double() @ b.double())
    x = torch.randn(8, 100).to(dtype)
    o = torch.empty_like(x)
    softmax[(8,)](x, o, 100, 128)
    eps = torch.finfo(dtype).eps
    out[f"softmax {name}"] = error(o, torch.softmax(x.double(), -1)) / eps
    w = torch.randn(100).to(dtype)
    layernorm[(8,)](x, w, o, 100, 1e-5, 128)
    want = torch.nn.functional.layer_norm(x.double(), (100,), w.double(), None, 1e-5)
    out[f"layernorm {name}"] = error(o, want) / eps / float(want.abs().max())

a, b = torch.randn(2, 64, 64)
for precision in ("ieee", "tf32x3", "tf32", None):
    c = torch.empty(64, 64)
    matmul[(2, 2)](a, b, c, 64, 64, 64, 32, 32, 32, precision)
    out[f"dot {precision}"] = error(c, a.double() @ b.double())

x, y = torch.randn(2, 256).to(torch.bfloat16)
o = torch.empty_like(x)
bf16_mix[(1,)](x, y, o, 256)
tenth = torch.tensor(0.1).to(torch.bfloat16)
out["bf16 mix"] = error(o, torch.where(x > y, x * y - x, torch.maximum(x, y)) + (-x) + y.abs() * tenth)

for dtype in (torch.float32, torch.bfloat16):
    one, many = torch.zeros(1, dtype=dtype), torch.randn(16).to(dtype)
    o = torch.empty_like(many)
    larger_of_one[(1,)](one, many, o, 16)
    out[f"larger {dtype}"] = error(o, many.clamp(min=0))

x = (torch.randn(64) * 100).to(torch.bfloat16)
i32, f16 = torch.empty(64, dtype=torch.int32), torch.empty(64, dtype=torch.float16)
f32, back = torch.empty(64), torch.empty(64, dtype=torch.bfloat16)
bf16_casts[(1,)](x, i32, f16, f32, back, 64)
out["bf16 casts"] = [error(i32, x.int()), error(f16, x.half()), error(f32, x.float()),
                     error(back, x.int().bfloat16() + (x > 0).bfloat16())]

x = torch.randn(4, 64)
o = torch.empty(8)
moments[(1,)](x, o, 64, 4)
out["welford"] = max(error(o[:4], x.mean(1)), error(o[4:], x.var(1, unbiased=False)))

a, b = torch.rand(64), torch.randn(64)
h, state = torch.zeros(64), 0.0
for t in range(64):
    state = a[t] * state + b[t]
    h[t] = state
o, last = torch.empty(64), torch.empty(64)
linear_scan[(1,)](a, b, o, last, 64)
out["scan"] = [error(o, h), error(last, b.flip(0).cumsum(0).flip(0))]

x = torch.randn(64)
x[5] = float("nan")
o, k = torch.empty(2), torch.empty(2, dtype=torch.int32)
extremes[(1,)](x, o, k, 64)
clean = x.nan_to_num(nan=0.0)
where = [int(clean.argmax()), int(clean.argmin())]
out["extremes"] = [error(o, torch.stack([clean.max(), clean.min()])), k.tolist() == where]

o = torch.empty(1, dtype=torch.int32)
runtime_loop[(1,)](o, 9, 7)
want = sum(i * j for i in range(9) for j in range(7))
out["loop"] = [int(o), want]

x = torch.randn(64).to(torch.bfloat16)
o = torch.empty_like(x)
sort_rows[(1,)](x, o, 64)
out["sort bf16"] = error(o, x.sort().values)

x, o = torch.randn(8), torch.empty(16)
logic[(1,)](x, o, 6, 8)
i = torch.arange(8)
m = (i >= 2) & (i < 6)
want = torch.where(m, x.clamp(min=0), torch.tensor(-1.0))
out["logic"] = [error(o[:8], want), error(o[8:], ((i < 1) | ~m).float())]

o = torch.zeros(1)
scalar_args[(1,)](o, True, 0.5, 6)
out["scalar args"] = float(o)

x = torch.cat([torch.randn(250) * 30, torch.tensor([500.0, -500.0, 1e-4, 0.0, 448.0, 17.0])])
o = torch.empty_like(x)
fp8_round_trip[(1,)](x, o, 256)
out["fp8"] = error(o, x.clamp(-448, 448).to(torch.float8_e4m3fn).float())
"""

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_pointwise_matmul_softmax_layernorm(interpret: Callable[[str], Facts], dtype: str) -> None:
    facts = interpret(NUMERICS)
    assert facts[f"add {dtype}"] == 0
    assert facts[f"matmul {dtype}"] < 1e-4
    assert facts[f"softmax {dtype}"] < 2
    assert facts[f"layernorm {dtype}"] < 4


def test_input_precision_is_honoured(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(NUMERICS)
    assert facts["dot ieee"] < 1e-4
    assert facts["dot tf32x3"] < 1e-4
    assert 1e-3 < facts["dot tf32"] < 1e-1
    assert facts["dot None"] == facts["dot tf32"], "a float32 dot is TF32 unless told otherwise"


def test_a_comparison_that_holds_nowhere_is_a_flag_all_the_same(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(NUMERICS)
    assert facts["larger torch.float32"] == 0
    assert facts["larger torch.bfloat16"] == 0


def test_bf16_arithmetic_casts_and_sort(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(NUMERICS)
    assert facts["bf16 mix"] == 0
    assert facts["bf16 casts"] == [0, 0, 0, 0]
    assert facts["sort bf16"] == 0
    assert facts["fp8"] == 0


def test_reductions_and_scans(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(NUMERICS)
    assert facts["welford"] < 1e-5
    assert max(facts["scan"]) < 1e-4
    assert facts["extremes"] == [0, True]


def test_python_syntax_means_what_the_compiler_means(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(NUMERICS)
    assert facts["loop"][0] == facts["loop"][1] % 1000
    assert facts["logic"] == [0, 0]
    assert facts["scalar args"] == 3.0
