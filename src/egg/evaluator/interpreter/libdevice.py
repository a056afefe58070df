"""``libdevice`` on the CPU: NVIDIA's math library, function by function, in numpy.

A libdevice function reaches the interpreter as a symbol such as ``__nv_tanhf``. The suffix
says the type, which numpy knows from its arguments anyway, so one table by stem serves both
float widths. The ``fast_`` variants have their stated errors
(:mod:`~egg.evaluator.interpreter.approximate`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from egg.evaluator.interpreter import approximate, special
from egg.evaluator.interpreter.fault import KernelFault

Function = Callable[..., Any]

_CONVERSION = re.compile(r"(?:float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_r([nzdu])")
_DIRECTED = re.compile(r"[fd](add|sub|mul|div|rcp|sqrt|rsqrt)_r([nzdu])|(fma)f?_r([nzdu])")
_INTEGERS = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
_ROUND: dict[str, Function] = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}

_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda a, b, c: a * b + c,
}


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return exact.astype(a.dtype)


def _round_half_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole).astype(x.dtype)


def _norm(*parts: np.ndarray) -> np.ndarray:
    squares = sum(np.square(part.astype(np.float64)) for part in parts)
    return np.sqrt(squares).astype(parts[0].dtype)


def _of_pi_times(function: Function) -> Function:
    """sin(pi x), cos(pi x): reduce by whole turns first, where float arithmetic is exact."""
    return lambda x: function(np.pi * np.fmod(x.astype(np.float64), 2.0)).astype(x.dtype)


def _logb(x: np.ndarray) -> np.ndarray:
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponent, np.abs(x))).astype(x.dtype)


def _ilogb(x: np.ndarray) -> np.ndarray:
    exponent = np.frexp(x)[1] - 1
    special_value = np.where(np.isinf(x), np.int64(2**31 - 1), np.int64(-(2**31)))
    return np.where((x == 0) | ~np.isfinite(x), special_value, exponent).astype(np.int32)


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """IEEE remainder, exact as its operands are; invalid arguments are NaN."""

    def one(a: float, b: float) -> float:
        return math.remainder(a, b) if math.isfinite(a) and b != 0 and b == b else math.nan

    x, y = np.broadcast_arrays(x, y)
    pairs = map(one, x.ravel().tolist(), y.ravel().tolist())
    return np.fromiter(pairs, dtype=np.float64, count=x.size).reshape(x.shape).astype(x.dtype)


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _popcount(x: np.ndarray) -> np.ndarray:
    return special.elementwise(int.bit_count)(_bits(x)).astype(np.int32)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    width = x.dtype.itemsize * 8
    return (width - special.elementwise(int.bit_length)(_bits(x)).astype(np.int64)).astype(np.int32)


def _first_set(x: np.ndarray) -> np.ndarray:
    return special.elementwise(lambda v: (v & -v).bit_length())(_bits(x)).astype(np.int32)


def _reversed_bits(x: np.ndarray) -> np.ndarray:
    bits, width = _bits(x), x.dtype.itemsize * 8
    result = np.zeros_like(bits)
    for position in range(width):
        result |= ((bits >> bits.dtype.type(position)) & bits.dtype.type(1)) << bits.dtype.type(
            width - 1 - position
        )
    return result.view(x.dtype)


def _high_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    width = a.dtype.itemsize * 8
    product = (a.astype(object) * b.astype(object)) >> width
    return product.astype(a.dtype)


def _average(round_up: int) -> Function:
    return lambda a, b: ((a.astype(np.int64) + b.astype(np.int64) + round_up) >> 1).astype(a.dtype)


def _low_24_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sign-extend (or cut) both factors to 24 bits and multiply."""

    def cut(x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.int64) & 0xFFFFFF
        return wide - ((wide >> 23) << 24) if x.dtype.kind == "i" else wide

    return (cut(a) * cut(b)).astype(a.dtype)


def _absolute_difference(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (np.abs(a.astype(np.int64) - b.astype(np.int64)) + c.astype(np.int64)).astype(c.dtype)


def _byte_permute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    pool = (_bits(b).astype(np.uint64) << np.uint64(32)) | _bits(a).astype(np.uint64)
    picks = _bits(selector).astype(np.uint64)
    result = np.zeros_like(pool)
    for byte in range(4):
        source = ((picks >> np.uint64(4 * byte)) & np.uint64(7)) * np.uint64(8)
        result |= ((pool >> source) & np.uint64(0xFF)) << np.uint64(8 * byte)
    return result.astype(np.uint32).view(np.int32)


def _join_double(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    joined = (_bits(high).astype(np.uint64) << np.uint64(32)) | _bits(low).astype(np.uint64)
    return joined.view(np.float64)


_TABLE: dict[str, Function] = {
    "abs": np.abs, "llabs": np.abs, "fabs": np.abs,
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh,
    "cbrt": np.cbrt, "rcbrt": lambda x: 1 / np.cbrt(x),
    "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint,
    "round": _round_half_away, "llrint": np.rint, "llround": _round_half_away,
    "copysign": np.copysign, "nextafter": np.nextafter,
    "cos": np.cos, "cosh": np.cosh, "sin": np.sin, "sinh": np.sinh, "tan": np.tan, "tanh": np.tanh,
    "cospi": _of_pi_times(np.cos), "sinpi": _of_pi_times(np.sin),
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "exp10": lambda x: np.power(10.0, x.astype(np.float64)).astype(x.dtype),
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "logb": _logb, "ilogb": _ilogb,
    "pow": np.power, "powi": lambda x, n: np.power(x.astype(np.float64), n).astype(x.dtype),
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "fdim": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.maximum(a - b, 0)).astype(a.dtype),
    "fma": _fma, "fmod": np.fmod, "remainder": _remainder, "fdivide": np.divide,
    "hypot": np.hypot, "rhypot": lambda a, b: 1 / np.hypot(a, b),
    "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": lambda *parts: 1 / _norm(*parts), "rnorm4d": lambda *parts: 1 / _norm(*parts),
    "ldexp": np.ldexp, "scalbn": np.ldexp,
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1).astype(x.dtype),
    "isnan": np.isnan, "isinf": np.isinf, "finite": np.isfinite, "isfinite": np.isfinite,
    "signbit": np.signbit,
    "erf": special.elementwise(math.erf), "erfc": special.elementwise(math.erfc),
    "erfcx": special.elementwise(special.erfcx),
    "erfinv": special.elementwise(special.erfinv), "erfcinv": special.elementwise(special.erfcinv),
    "normcdf": special.elementwise(special.normcdf),
    "normcdfinv": special.elementwise(special.normcdfinv),
    "lgamma": special.elementwise(special.lgamma), "tgamma": special.elementwise(special.tgamma),
    "j0": special.bessel_j(0), "j1": special.bessel_j(1), "jn": special.bessel_jn,
    "cyl_bessel_i0": special.bessel_i(0), "cyl_bessel_i1": special.bessel_i(1),
    "clz": _leading_zeros, "popc": _popcount, "ffs": _first_set, "brev": _reversed_bits,
    "mulhi": _high_half, "umulhi": _high_half, "mul64hi": _high_half, "umul64hi": _high_half,
    "mul24": _low_24_product, "umul24": _low_24_product,
    "hadd": _average(0), "uhadd": _average(0), "rhadd": _average(1), "urhadd": _average(1),
    "sad": _absolute_difference, "usad": _absolute_difference, "byte_perm": _byte_permute,
    "int_as_float": lambda x: x.view(np.float32), "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32), "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "double2loint": lambda x: _bits(x).astype(np.uint32).view(np.int32),
    "double2hiint": lambda x: (_bits(x) >> np.uint64(32)).astype(np.uint32).view(np.int32),
    "hiloint2double": _join_double,
}  # fmt: skip


def lookup(symbol: str) -> Function | None:
    """The numpy function behind a symbol: exact stem, then without ``fast_``, then without a type suffix."""
    name = symbol.removeprefix("__nv_")
    if match := _CONVERSION.fullmatch(name):
        return _conversion(match[1], match[2])
    if match := _DIRECTED.fullmatch(name):
        return _directed(_ARITHMETIC[match[1] or match[3]], match[2] or match[4])
    if name.startswith("fast_") and (fast := approximate.FAST.get(name.removeprefix("fast_"))) is not None:
        return fast
    name = name.removeprefix("fast_")
    for suffix in ("", "f", "d", "ll", "ef"):
        stem = name.removesuffix(suffix) if suffix else name
        if stem + suffix == name and stem in _TABLE:
            return _TABLE[stem]
    return _TABLE.get("fdivide") if name == "fdividef" else None


def _conversion(target: str, mode: str) -> Function:
    """Integers saturate and NaN is zero, as on the GPU; floats round in the named direction."""
    if target not in _INTEGERS:
        wide = np.float32 if target == "float" else np.float64
        return lambda x: _nudge(x.astype(np.float64), x.astype(wide), mode)

    def to_integer(x: np.ndarray) -> np.ndarray:
        kind = _INTEGERS[target]
        limits = np.iinfo(kind)
        rounded = _ROUND[mode](x.astype(np.float64))
        clipped = np.clip(
            np.nan_to_num(rounded, nan=0.0, posinf=np.inf, neginf=-np.inf), limits.min, limits.max
        )
        result = np.where(clipped >= float(limits.max), limits.max, 0).astype(kind)
        inside = clipped < float(limits.max)
        result[inside] = clipped[inside].astype(kind)
        return result

    return to_integer


def _directed(function: Function, mode: str) -> Function:
    """Compute in float64, round to the argument's type, and step once if that went the wrong way."""

    def evaluate(*args: np.ndarray) -> np.ndarray:
        exact = function(*(arg.astype(np.float64) for arg in args))
        return _nudge(exact, exact.astype(args[0].dtype), mode)

    return evaluate


def _nudge(exact: np.ndarray, rounded: np.ndarray, mode: str) -> np.ndarray:
    if mode == "n":
        return rounded
    back = rounded.astype(np.float64)
    down = np.nextafter(rounded, rounded.dtype.type(-np.inf))
    up = np.nextafter(rounded, rounded.dtype.type(np.inf))
    too_high, too_low = back > exact, back < exact
    if mode == "z":
        too_high, too_low = too_high & (exact > 0), too_low & (exact < 0)
    elif mode == "d":
        too_low = np.zeros_like(too_low)
    else:
        too_high = np.zeros_like(too_high)
    return np.where(too_high, down, np.where(too_low, up, rounded))


def mend(builder: Any) -> None:
    """Bind both libdevice modules to the interpreter, before a candidate imports their names.

    The CUDA module's functions pick the symbol by argument types and need the semantic layer
    handed in; the portable module holds bare declarations that the compiler maps to the
    backend's, so here they become the CUDA module's.
    """
    import triton.language as tl
    import triton.language.extra.libdevice as portable
    from triton.language.extra.cuda import libdevice as cuda
    from triton.runtime import interpreter

    for name, function in list(vars(cuda).items()):
        if not tl.core.is_builtin(function):
            continue
        bound = _bind(name, function, interpreter.interpreter_semantic, builder)
        setattr(cuda, name, bound)
    for name, declared in list(vars(portable).items()):
        if callable(declared):
            setattr(portable, name, getattr(cuda, name, None) or _absent(name, builder))


def _absent(name: str, builder: Any) -> Function:
    def call(*args: Any, **named: Any) -> Any:
        raise KernelFault("unsupported", f"{builder.where()}: libdevice.{name} does not exist on CUDA")

    return call


def _bind(name: str, function: Function, semantic: Any, builder: Any) -> Function:
    def call(*args: Any, _semantic: Any = None) -> Any:
        try:
            return function(*args, _semantic=semantic)
        except KeyError as missing:
            types = ", ".join(str(t) for t in missing.args[0]) if missing.args else "these types"
            raise KernelFault(
                "unsupported",
                f"{builder.where()}: libdevice.{name} takes no ({types}); cast the arguments first",
            ) from missing

    call.__name__ = name
    return call
