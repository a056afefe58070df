"""The math library in the mended interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]


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
    assert {n: e for n, e in errors.items() if not e < (1e-4 if n.startswith("fast_") else 1e-6)} == {}
    assert errors["fast_sinf"] > 1e-6, "sin.approx is not as exact as that"


def test_libdevice_scalars_integers_and_refusals(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LIBDEVICE)
    assert facts["scalar exponent"] < 1e-6
    assert facts["integers"] == 0
    assert facts["bf16"]["reason"] == "unsupported"
    assert "libdevice.tanh" in facts["bf16"]["message"]
    assert facts["asm"]["reason"] == "unsupported"
