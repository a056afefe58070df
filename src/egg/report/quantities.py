"""Numbers as people read them: three digits, a prefix, a unit."""

from __future__ import annotations

import math

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def quantity(value: float, unit: str) -> str:
    """``4.8 TB/s``, ``512 B``, ``0.33 FLOP/byte``: decimal prefixes, at most three digits that count.

    A value that rounds up to a thousand takes the next prefix, so that ``999.9e9`` is ``1 T``
    and never ``1e+03 G``.
    """
    if not math.isfinite(value):
        return f"{value} {unit}".rstrip()
    size, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s * 0.9995), (1.0, ""))
    scaled = value / size
    digits = f"{scaled:,.0f}" if abs(scaled) >= 999.5 else f"{scaled:.3g}"
    return f"{digits} {prefix}{unit}".rstrip()


def milliseconds(value: float) -> str:
    """A time that may be far from a millisecond: ``27 ns``, ``2.1 us``, ``0.029 ms``, ``1.4 s``."""
    if 0 < value < 1e-6:
        return "<1 ns"
    if 0 < value < 1e-3:
        return f"{value * 1e6:.3g} ns"
    if 0 < value < 0.01:
        return f"{value * 1e3:.3g} us"
    return f"{value:.3g} ms" if value < 999.5 else f"{value / 1e3:,.3g} s"


def percent(share: float) -> str:
    """``62%``; what is not nothing is never shown as none, and as all only what lacks next to nothing."""
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1:
        return ">99%" if share < 0.9995 else "100%"
    return f"{share:.0%}"


def factor(value: float) -> str:
    """``1.8x``, ``26x``."""
    return f"{value:.2g}x" if value < 9.95 else f"{value:,.0f}x"


def per_byte(intensity: float) -> str:
    """Operations per byte, which people compare as plain numbers: ``0.62``, ``1,230 FLOP/byte``."""
    digits = f"{intensity:,.0f}" if intensity >= 999.5 else f"{intensity:.3g}"
    return f"{digits} FLOP/byte"
