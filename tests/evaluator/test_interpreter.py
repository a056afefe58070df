"""The mended interpreter, on real small kernels.

Whether a kernel is interpreted is decided when ``@triton.jit`` decorates it, so each group of
kernels runs in a process of its own, as a candidate does, and reports what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import egg
from egg.evaluator.interpreter import dot, install, narrow, special

PRELUDE = """
import json
from egg.evaluator.interpreter import KernelFault, Launch, install

session = install()

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

torch.manual_seed(0)
out = {}

def fault(call):
    try:
        call()
    except KernelFault as error:
        return {"reason": error.reason, "message": str(error)}
    return None

def error(got, want):
    return float((got.double() - want.double()).abs().max())
"""

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Facts]:
    """Run a script of kernels under the interpreter and return its ``out``; each script runs once."""
    folder = tmp_path_factory.mktemp("kernels")
    seen: dict[str, Facts] = {}
    source = Path(next(iter(egg.__path__))).parent

    def run(script: str) -> Facts:
        if script not in seen:
            seen[script] = {}
            path = folder / f"group{len(seen)}.py"
            path.write_text(PRELUDE + textwrap.dedent(script) + "\nprint(json.dumps(out))\n")
            environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr[-3000:]
            seen[script] = json.loads(done.stdout.splitlines()[-1])
        return seen[script]

    return run


def test_install_refuses_a_process_that_would_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
        install()


# ---- rounding, against PyTorch's own -------------------------------------------------------

FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
BITS = st.integers(0, 2**32 - 1)


def bf16_bits_by_torch(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


@given(st.lists(FLOAT32, min_size=1, max_size=64))
def test_bf16_rounds_as_torch_does(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    ours, theirs = narrow.f32_to_bf16(array), bf16_bits_by_torch(array)
    nan = np.isnan(array)
    assert np.array_equal(ours[~nan], theirs[~nan])
    assert np.isnan(narrow.bf16_to_f32(ours[nan])).all()


def test_bf16_ties_and_carries() -> None:
    """Every tie between two bf16 values, and the neighbours of each tie."""
    halves = (np.arange(0, 0x7F80, dtype=np.int64) << 16) | 0x8000
    for step in (-1, 0, 1):
        array = (halves + step).astype(np.uint32).view(np.float32)
        assert np.array_equal(narrow.f32_to_bf16(array), bf16_bits_by_torch(array))


@given(st.lists(BITS, min_size=1, max_size=64))
def test_tf32_keeps_ten_bits_toward_zero(patterns: list[int]) -> None:
    array = np.array(patterns, dtype=np.uint32).view(np.float32)
    got = narrow.truncate_to_tf32(array)
    finite = np.isfinite(array)
    assert (got.view(np.uint32)[finite] & 0x1FFF == 0).all()
    assert (np.abs(got[finite]) <= np.abs(array[finite])).all()
    normal = finite & (np.abs(array) >= np.finfo(np.float32).tiny)
    relative = np.abs(got[normal].astype(np.float64) / array[normal].astype(np.float64) - 1)
    assert (relative < 2.0**-10).all()
    assert np.array_equal(np.isnan(got), np.isnan(array))
    assert np.array_equal(narrow.truncate_to_tf32(got), got, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [("fp8e4nv", torch.float8_e4m3fn), ("fp8e5", torch.float8_e5m2)])
def test_fp8_matches_torch(name: str, dtype: torch.dtype) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(dtype).float().numpy()
    assert np.array_equal(narrow.f8_to_f32(codes, name), values, equal_nan=True)
    finite = np.sort(values[np.isfinite(values)])
    samples = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, np.linspace(-2, 2, 4001)])
    samples = samples.astype(np.float32)
    theirs = torch.from_numpy(samples).to(dtype).view(torch.uint8).numpy()
    assert np.array_equal(narrow.f32_to_f8(samples, name), theirs)
    assert narrow.f8_to_f32(narrow.f32_to_f8(np.float32([1e9, -1e9]), name), name).tolist() == [
        finite[-1],
        finite[0],
    ]


def test_dot_precisions_are_ordered() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    zero = np.zeros((64, 64), dtype=np.float32)
    errors = {
        p: np.abs(dot.product(a, b, zero, p) - exact).max() for p in ("IEEE", "TF32x3", "BF16x3", "TF32")
    }
    assert errors["IEEE"] == errors["TF32x3"] < errors["BF16x3"] < errors["TF32"]
    assert 1e-3 < errors["TF32"] < 1e-1
    by_hand = narrow.truncate_to_tf32(a) @ narrow.truncate_to_tf32(b)
    assert np.array_equal(dot.product(a, b, zero, "TF32"), by_hand)


def test_int8_dot_is_exact() -> None:
    a, b = np.random.default_rng(1).integers(-128, 128, (2, 32, 32), dtype=np.int8)
    acc = np.full((32, 32), 7, dtype=np.int32)
    assert np.array_equal(dot.product(a, b, acc, "IEEE"), a.astype(np.int32) @ b.astype(np.int32) + 7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (special.erfinv, torch.special.erfinv),
        (special.normcdf, torch.special.ndtr),
        (special.erfcx, torch.special.erfcx),
        (special.lgamma, torch.lgamma),
    ],
)
def test_special_functions_match_torch(ours: Callable[[float], float], theirs: Callable[..., Any]) -> None:
    x = torch.cat([torch.linspace(-0.999, 0.999, 333), torch.tensor([1e-12, 1e-5, 1 - 1e-8])]).double()
    got = special.elementwise(ours)(x.numpy())
    assert np.allclose(got, theirs(x).numpy(), rtol=1e-8, atol=0, equal_nan=True)


# ---- kernels that must compute the right thing ----------------------------------------------

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


# ---- libdevice --------------------------------------------------------------------------------

LIBDEVICE = """
from triton.language.extra.cuda import libdevice as cuda_libdevice

unary = ("tanh erf erfc exp exp2 log log2 log1p expm1 rsqrt sqrt sin cos tan asinh atan sinh cosh floor ceil "
         "trunc rint abs erfinv lgamma fast_expf fast_logf fast_sinf cbrt exp10 j0 cyl_bessel_i0").split()
binary = "pow atan2 fmod hypot copysign fast_powf fast_dividef div_rn nextafter".split()
kernels = "import triton\\nimport triton.language as tl\\nfrom triton.language.extra import libdevice\\n"
for name in unary:
    kernels += f'''
@triton.jit
def k_{name}(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, libdevice.{name}(tl.load(x + i)))
'''
for name in binary:
    kernels += f'''
@triton.jit
def k_{name}(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, libdevice.{name}(tl.load(x + i), tl.load(y + i)))
'''
from pathlib import Path
import importlib, sys
Path(__file__).with_name("libdevice_kernels.py").write_text(kernels)
sys.path.insert(0, str(Path(__file__).parent))
import libdevice_kernels

x = torch.rand(256) * 0.98 + 0.01
y = torch.rand(256) + 0.5
reference = {
    "rint": torch.round, "fast_expf": torch.exp, "fast_logf": torch.log, "fast_sinf": torch.sin,
    "cbrt": lambda v: v ** (1 / 3), "exp10": lambda v: 10**v,
    "j0": torch.special.bessel_j0, "cyl_bessel_i0": torch.special.i0, "fast_powf": torch.pow,
    "fast_dividef": torch.div, "div_rn": torch.div,
}
out["error"] = {}
for name in unary + binary:
    o = torch.empty(256)
    args = (x, y) if name in binary else (x,)
    getattr(libdevice_kernels, f"k_{name}")[(1,)](*args, o, B=256)
    fn = reference.get(name) or getattr(torch, name)
    want = fn(*args) if name == "nextafter" else fn(*(a.double() for a in args))
    want = want.double()
    out["error"][name] = float(((o.double() - want).abs() / want.abs().clamp(min=1e-30)).max())

@triton.jit
def odd_ones(x, n, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, cuda_libdevice.tanh(v) + tl.extra.cuda.libdevice.pow(v, 2.0))
    tl.store(n + i, libdevice.popc(tl.load(n + i)) + libdevice.float2int_rd(v * 10 - 5))

o, n = torch.empty(256), torch.arange(256, dtype=torch.int32)
odd_ones[(1,)](x, n, o, 256)
out["scalar exponent"] = error(o, x.tanh() + x**2)
out["integers"] = error(n, torch.tensor([bin(i).count("1") for i in range(256)]) + (x * 10 - 5).floor())

@triton.jit
def no_such_type(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, libdevice.tanh(tl.load(x + i)))

half = x.to(torch.bfloat16)
out["bf16"] = fault(lambda: no_such_type[(1,)](half, torch.empty_like(half), 256))

@triton.jit
def assembly(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    w = tl.inline_asm_elementwise("bar.sync 0;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, w)

out["asm"] = fault(lambda: assembly[(1,)](x, torch.empty(256), 256))
"""


def test_libdevice_values(interpret: Callable[[str], Facts]) -> None:
    errors = interpret(LIBDEVICE)["error"]
    assert len(errors) > 35
    assert {name: e for name, e in errors.items() if not e < 1e-6} == {}


def test_libdevice_scalars_integers_and_refusals(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LIBDEVICE)
    assert facts["scalar exponent"] < 1e-6
    assert facts["integers"] == 0
    assert facts["bf16"]["reason"] == "unsupported"
    assert "libdevice.tanh" in facts["bf16"]["message"]
    assert facts["asm"]["reason"] == "unsupported"


# ---- bounds -----------------------------------------------------------------------------------

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
    ["inside", "masked tile", "neighbour through a view", "descriptor", "host descriptor", "empty",
     "two arguments in one load"],
)  # fmt: skip
def test_legitimate_accesses_pass(interpret: Callable[[str], Facts], case: str) -> None:
    assert interpret(BOUNDS)[case] is None


def test_translated_accesses_reach_the_right_memory(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(BOUNDS)
    assert facts["right values"] == facts["view values"] == facts["picked"] == 0
    assert facts["descriptor values"] == [0, 0]
    assert facts["host descriptor values"] == 0


def test_a_block_is_no_condition(interpret: Callable[[str], Facts]) -> None:
    assert interpret(BOUNDS)["condition"]["reason"] == "unsupported"


# ---- races ------------------------------------------------------------------------------------

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
        ("init", "accumulates atomically what program (0, 0, 0) stores"),
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
    assert [n for n in facts["last one notes"] if "atomics on another buffer" in n]


def test_waiting_for_a_later_program_ends(interpret: Callable[[str], Facts]) -> None:
    found = interpret(RACES)["spin"]
    assert found["reason"] == "unsupported"
    assert "program (0, 0, 0): polls one element" in found["message"]


def test_values_beside_the_race_check(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(RACES)
    assert facts["overlap value"] == facts["column value"] == 0
    assert max(facts["split k value"], facts["last one value"]) < 1e-5
    assert facts["atomic torch.float16"] == facts["atomic torch.bfloat16"] == [8, 8, 8, 8]


# ---- launches, autotuning, skipping -----------------------------------------------------------

LAUNCHES = """
calls = []

@triton.autotune(configs=[triton.Config({"B": b}, num_warps=2) for b in (24, 32, 64)], key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr):
    tl.static_assert(B % 32 == 0, "B must be a multiple of 32")
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], reset_to_zero=["o"])
@triton.jit
def total(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], restore_value=["x"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def guessed(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(x + i, tl.load(x + i) * 2)
    else:
        tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def prune(configs, named_args, **kwargs):
    calls.append(named_args["n"])
    return configs[1:]

@triton.autotune(configs=[triton.Config({"B": b}) for b in (8, 16, 32)], key=["n"],
                 prune_configs_by={"early_config_prune": prune})
@triton.jit
def pruned(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 1.0, mask=i < n)

@triton.jit
def plain(x, o, n, B: tl.constexpr = 16):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

grid = lambda meta: (triton.cdiv(meta["n"], meta["B"]),)
x, o = torch.randn(100), torch.empty(100)
tuned[grid](x, o, 100)
out["tuned"] = error(o, x + 1)
out["tuned launches"] = [[l.kernel, list(l.grid)] for l in session.launches]
session.reset()
o = torch.full((1,), 5.0)
total[grid](x, o, 100)
out["reset"] = error(o, x.sum())
y = x.clone()
guessed[grid](y, 100)
out["heuristics"] = error(y, x * 2)
pruned[grid](y, 100)
plain[(7, 1)](x, torch.empty(100), 100, num_warps=8)
plain[[0]](x, torch.empty(100), 100)
out["launches"] = [[l.kernel, list(l.grid)] for l in session.launches]
out["prune calls"] = calls
out["frozen"] = session.launches[0] == Launch("total", (7,)) and hash(session.launches[0]) is not None
session.reset()
out["after reset"] = len(session.launches)
session.skip.add("plain")
o = torch.zeros(100)
plain[grid](x, o, n=100)
out["skipped"] = [error(o, torch.zeros(100)), len(session.launches)]
session.skip.clear()
plain[grid](x, o, n=100)
out["not skipped"] = error(o, x)
out["too large"] = fault(lambda: plain[(1, 70000)](x, o, 100))
out["target"] = triton.runtime.driver.active.get_current_target().backend
"""


def test_autotune_takes_the_first_valid_configuration(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["tuned"] == 0
    assert facts["tuned launches"] == [["tuned", [4]]], "24 fails its static assertion, 32 is next"
    assert facts["reset"] < 1e-5
    assert facts["heuristics"] == 0
    assert facts["prune calls"] == [100]


def test_launches_are_recorded_by_kernel_name(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    names, grids = zip(*facts["launches"], strict=True)
    assert names == ("total", "guessed", "pruned", "plain", "plain")
    assert grids == ([7], [7], [7], [7, 1], [0])
    assert facts["frozen"]
    assert facts["after reset"] == 0


def test_skipping_a_kernel_changes_the_output(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["skipped"] == [0, 1]
    assert facts["not skipped"] == 0


def test_impossible_grid_and_target(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["too large"]["reason"] == "unsupported"
    assert facts["target"] == "cuda"
