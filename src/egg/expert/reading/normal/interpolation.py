"""Images at another size: every element of the result from its neighbours in the source.

Nearest neighbours by whole factors are views. Everything else is a ``resample``: a weighted sum of elements
at places that are counted. What an element means is decided here: along each dimension two neighbours of the
result lie ``scale`` elements of the source apart, rounded to fp32 by the kernels as ATen does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from egg.expert.graph import Node, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, extents

FLOATS = frozenset({"float32", "float16", "bfloat16"})
"""What is interpolated in fp32. Images of bytes have fixed-point weights of their own on a CPU."""
FACTORS = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}
"""Where the operators without a list keep the factor of each dimension."""


def _resample(fn: str) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        value = call.get("self", call.get("input"))
        if 0 in call.shape or not (value.dtype in FLOATS or "nearest" in fn):
            return None
        old, new, factors = extents(value)[2:], call.shape[2:], _factors(call, value.rank - 2)
        given = [factor for factor in factors if factor is not None]
        if given and [math.floor(n * f) for n, f in zip(old, given, strict=False)] != list(new):
            return None
        aligned = bool(call.get("align_corners", False))
        places = zip(old, new, factors, strict=True)
        scales = [1.0 if n == m == 1 else _scale(n, m, factor, aligned) for n, m, factor in places]
        if old == new:
            # Where a factor says otherwise, PyTorch copies on one device and resamples on another.
            return value if all(scale == 1.0 for scale in scales) else None
        if "nearest" in fn and _is_whole(old, new, scales):
            return _repeated(b, value, call.shape)
        axes = tuple(d for d, scale in enumerate(scales) if old[d] != new[d] or scale != 1.0)
        attributes: dict[str, Any] = {
            "axes": tuple(axis + 2 for axis in axes),
            "scale": tuple(scales[axis] for axis in axes),
            "factors": tuple(given) or None,
            "aligned": aligned,
        }
        source, scaled = _unscaled(b, value)
        made = b.one("resample", [source], call.shape, call.dtype, "resized", fn=fn, **attributes)
        return made if scaled is None else b.pointwise(scaled["fn"], made, scaled["scalars"][1])

    return rule


def _unscaled(b: Builder, value: Value) -> tuple[Value, Node | None]:
    """What was multiplied or divided by a number to make a source in fp32, and that operator. Sums of
    neighbours are scaled as well as neighbours, and there are fewer of them."""
    maker = b.producers.get(value.name)
    if maker is None or maker.get("fn") not in ("mul", "div") or value.dtype != "float32":
        return value, None
    scalars, source = maker.get("scalars", ()), b.values[str(maker.inputs[0])]
    by_number = len(scalars) == 2 and scalars[0] is None and isinstance(scalars[1], int | float)
    plain = by_number and source.dtype == value.dtype and source.shape == value.shape
    return (source, maker) if plain else (value, None)


def _factors(call: Call, space: int) -> list[float | None]:
    return list(call.get("scale_factors") or [call.get(name) for name in FACTORS[space]])


def _scale(old: int, new: int, factor: float | None, aligned: bool) -> float:
    """A factor that is given counts, whatever the rounded size of the result would make it."""
    if aligned:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return 1.0 / factor if factor else old / new


# -- nearest neighbours -------------------------------------------------------------------------------


def _is_whole(old: Sequence[int], new: Sequence[int], scales: Sequence[float]) -> bool:
    """Whether every element is repeated as often as any other."""
    places = zip(old, new, scales, strict=True)
    return all(m % n == 0 and math.isclose(scale * m, n) for n, m, scale in places)


def _repeated(b: Builder, value: Value, grown: Sequence[int]) -> Value:
    shape = extents(value)
    factors = [new // old for old, new in zip(shape, grown, strict=True)]
    split = b.reshape(
        value, [m for n, f in zip(shape, factors, strict=True) for m in ((n, 1) if f != 1 else (n,))]
    )
    wide = b.expand(
        split, [m for n, f in zip(shape, factors, strict=True) for m in ((n, f) if f != 1 else (n,))]
    )
    return b.reshape(wide, grown)


RULES: dict[str, Rule] = {
    **dict.fromkeys([f"upsample_nearest{n}d" for n in (1, 2, 3)], _resample("nearest")),
    **dict.fromkeys([f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)], _resample("nearest_exact")),
    **dict.fromkeys(
        ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"], _resample("linear")
    ),
    "upsample_bicubic2d": _resample("cubic"),
}
