"""The GPU's approximate instructions with the errors that NVIDIA states for them.

``sin.approx.f32`` and its like, which inline assembly names and libdevice's ``fast_`` functions become,
are less exact than numpy by up to thirteen bits. Each is computed exactly and then moved within its stated
error (PTX ISA, and the CUDA guide's table of intrinsic functions); how far is a hash of the argument, so
the same argument always has the same value. Where the error comes from an argument that is rounded first,
that rounding is done: turns instead of radians, powers of two instead of *e*.

``tl.exp2``, ``tl.sqrt`` and ``tl.rsqrt`` become instructions with ``.ftz``, which take and give no subnormal
numbers (:func:`flushed`); float remainders are no instruction at all (:func:`remainder`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from egg.evaluator.interpreter.session import LOT

Function = Callable[..., np.ndarray]

_TURNS = np.float32(1 / (2 * np.pi))
_LOG2_E = np.float32(1 / np.log(2))
_LOG2_10 = np.float32(np.log2(10))
_ULP = 2.0**-23


_LEAST = np.finfo(np.float32).tiny


def flushed(values: np.ndarray) -> np.ndarray:
    """``.ftz``: float32 numbers too small for a full mantissa are zero, of their sign."""
    if values.dtype != np.float32:
        return values
    small = np.abs(values) < _LEAST
    return np.where(small, values * np.float32(0), values) if small.any() else values


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a % b`` of floats as the compiler writes it: ``fma(-trunc(a / b), b, a)``, and ``a`` by infinity."""
    whole = np.trunc(a / b)
    rest = (a.astype(np.float64) - whole.astype(np.float64) * b.astype(np.float64)).astype(a.dtype)
    return np.where(np.isinf(b), a, rest)


def _noise(x: np.ndarray) -> np.ndarray:
    """Between -1 and 1, by the bits of ``x`` alone (and by lot, where lots are drawn)."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    mixed = (bits + np.uint64(LOT.seed)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1


def _relative(function: Function, error: float) -> Function:
    def approximate(x: np.ndarray) -> np.ndarray:
        exact = function(x.astype(np.float64))
        return (exact * (1 + error * _noise(x))).astype(x.dtype)

    return approximate


def _logarithm(function: Function, error: float) -> Function:
    """An absolute error between a half and two, where the value is small, a relative one elsewhere."""

    def approximate(x: np.ndarray) -> np.ndarray:
        exact = function(x.astype(np.float64))
        near = (x >= 0.5) & (x <= 2)
        scale = np.where(near, error, 3 * _ULP * np.abs(np.where(np.isfinite(exact), exact, 0)))
        return (exact + scale * _noise(x)).astype(x.dtype)

    return approximate


def _circular(function: Function, error: float) -> Function:
    def approximate(x: np.ndarray) -> np.ndarray:
        turns = x.astype(np.float32) * _TURNS
        exact = function(2 * np.pi * np.fmod(turns.astype(np.float64), 1.0))
        return (exact + error * _noise(x)).astype(x.dtype)

    return approximate


_ex2 = _relative(np.exp2, 2.0**-22)
_lg2 = _logarithm(np.log2, 2.0**-22)
_sin = _circular(np.sin, 2.0**-21.4)
_cos = _circular(np.cos, 2.0**-21.2)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    exact = a.astype(np.float64) / b.astype(np.float64)
    return np.where(np.abs(b) > 2.0**126, exact * 0, exact * (1 + _ULP * _noise(b))).astype(a.dtype)


INSTRUCTIONS: dict[str, Function] = {
    "tanh": _relative(np.tanh, 2.0**-11),
    "ex2": _ex2,
    "lg2": _lg2,
    "rcp": _relative(np.reciprocal, _ULP),
    "sqrt": _relative(np.sqrt, _ULP),
    "rsqrt": _relative(lambda x: 1 / np.sqrt(x), 2.0**-22.4),
    "sin": _sin,
    "cos": _cos,
}
"""By the first word of the PTX instruction."""

FAST: dict[str, Function] = {
    "sinf": _sin,
    "cosf": _cos,
    "tanf": lambda x: _divide(_sin(x), _cos(x)),
    "tanhf": INSTRUCTIONS["tanh"],
    "expf": lambda x: _ex2(x * _LOG2_E),
    "exp10f": lambda x: _ex2(x * _LOG2_10),
    "logf": _logarithm(np.log, 2.0**-21.4),
    "log2f": _lg2,
    "log10f": _logarithm(np.log10, 2.0**-22),
    "powf": lambda x, y: _ex2(y * _lg2(x)),
    "fdividef": _divide,
}
"""By the name of libdevice's function behind ``fast_``."""
