"""Operators that are a few others: what PyTorch has a name for, though each is a line of pointwise functions,
reductions and views. Taken apart they join the passes around them; a call would stand between two of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import FEW_TERMS, Builder, Call, Lowered, Rule, dimension, extents
from egg.expert.reading.normal.reductions import gather, vector_norm

MOST_ROUNDS = 8
"""Differences of differences."""
DIRECT = 25
"""Rows on both sides up to which PyTorch takes differences for distances, instead of a product."""


def _finite(b: Builder, call: Call) -> Lowered | None:
    """Smaller than infinity, which no comparison with NaN says."""
    value = call["self"]
    if "complex" in value.dtype:
        return None
    if "float" not in value.dtype:
        return b.fill(extents(value), True, "bool")
    return b.pointwise("lt", b.pointwise("abs", value), math.inf)


def _infinity(sign: float) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered:
        value = call["self"]
        if "float" not in value.dtype:
            return b.fill(extents(value), False, "bool")
        return b.pointwise("eq", value, sign * math.inf)

    return rule


def _only_numbers(b: Builder, call: Call) -> Lowered | None:
    """Infinities become the largest numbers of the dtype where nothing else is asked for."""
    value = call["self"]
    if "complex" in value.dtype:
        return None
    if "float" not in value.dtype:
        return value
    limits = torch.finfo(getattr(torch, value.dtype))
    made = b.where(b.pointwise("isnan", value), float(call.get("nan", 0.0)), value)
    for sign, name, bound in ((1, "posinf", limits.max), (-1, "neginf", limits.min)):
        infinite = b.pointwise("eq", value, sign * math.inf)
        made = b.where(infinite, float(call.get(name, bound)), made)
    return b.cast(made, call.dtype)


def _without_nan(fn: str) -> Rule:
    """``nansum``, and the mean of what is left."""

    def rule(b: Builder, call: Call) -> Lowered:
        value = call["self"]
        value = b.cast(value, call.dtype) if "float" in call.dtype else value
        dims, keepdim = call.get("dim"), call.get("keepdim", False)
        missing = b.pointwise("isnan", value)
        total = b.reduce("sum", b.where(missing, 0.0, value), dims, keepdim, dtype=call.dtype)
        if fn == "sum":
            return total
        there = b.cast(b.pointwise("logical_not", missing), call.dtype)
        return b.pointwise("div", total, b.reduce("sum", there, dims, keepdim), dtype=call.dtype)

    return rule


def _entropy(b: Builder, call: Call) -> Lowered:
    """``-x log(x)``, zero at zero, minus infinity below."""
    value = b.cast(call["self"], call.dtype)
    made = b.pointwise("neg", b.pointwise("xlogy", value, value))
    return b.where(b.pointwise("lt", value, 0), -math.inf, made)


def _normal(b: Builder, call: Call) -> Lowered:
    """The distribution function of the standard normal distribution."""
    value = b.cast(call["self"], call.dtype)
    tail = b.pointwise("erfc", b.pointwise("mul", value, -math.sqrt(0.5)))
    return b.pointwise("mul", tail, 0.5)


def _differences(b: Builder, call: Call) -> Lowered | None:
    value, rounds = call["self"], call.get("n", 1)
    dim = dimension(call.get("dim", -1), value.rank)
    if value.dtype == "bool" or "complex" in value.dtype or not value.rank or rounds > MOST_ROUNDS:
        return None
    ends = [call.get("prepend"), value, call.get("append")]
    value = b.cat([end for end in ends if end is not None], dim)
    for _ in range(rounds):
        left = extents(value)[dim] - 1
        if left < 1:
            return None
        value = b.pointwise("sub", b.slice(value, dim, 1, left), b.slice(value, dim, 0, left))
    return value


def _quarter_turns(b: Builder, call: Call) -> Lowered:
    value, turns = call["self"], call.get("k", 1) % 4
    first, second = (dimension(d, value.rank) for d in call.get("dims", (0, 1)))
    match turns:
        case 1:
            return b.transpose(b.flip(value, [second]), first, second)
        case 2:
            return b.flip(value, [first, second])
        case 3:
            return b.transpose(b.flip(value, [first]), first, second)
    return value


def _along(b: Builder, call: Call) -> Lowered:
    """A gather whose other dimensions broadcast."""
    value, index = call["self"], call["indices"]
    if call.get("dim") is None:
        return gather(b, b.reshape(value, (-1,)), b.reshape(index, (-1,)), 0)
    dim = dimension(call["dim"], value.rank)
    wide = list(torch.broadcast_shapes(_without(value, dim), _without(index, dim)))
    table, places = (b.expand(v, [*wide[:dim], extents(v)[dim], *wide[dim + 1 :]]) for v in (value, index))
    return gather(b, table, places, dim)


def _without(value: Value, dim: int) -> tuple[int, ...]:
    """A shape with one place along ``dim``."""
    return tuple(1 if d == dim else n for d, n in enumerate(extents(value)))


def _distances(b: Builder, call: Call) -> Lowered | None:
    """Between all rows of two matrices: from their differences, Euclidean ones of long rows by the product
    with which PyTorch computes them."""
    first, second, order = call["x1"], call["x2"], float(call.get("p", 2.0))
    rows, others, width = extents(first)[-2], extents(second)[-2], extents(first)[-1]
    if first.dtype != "float32" or second.dtype != "float32" or not min(rows, others, width):
        return None
    by_product = order == 2 and width > FEW_TERMS
    if not by_product or not _by_product(call.get("compute_mode", 0), rows, others):
        gaps = b.pointwise("sub", b.unsqueeze(first, first.rank - 1), b.unsqueeze(second, second.rank - 2))
        return vector_norm(b, gaps, order, -1, False)
    product = b.matmul(first, b.transpose(second))
    a, c = (b.reduce("sum", b.pointwise("square", v), -1, True) for v in (first, second))
    squares = b.pointwise("add", a, b.transpose(c))
    squares = b.pointwise("sub", squares, b.pointwise("mul", product, 2.0))
    return b.pointwise("sqrt", b.pointwise("clamp_min", squares, 0.0))


def _by_product(mode: Any, rows: int, others: int) -> bool:
    """As ``compute_mode`` says: by a product if that is worth it, always, or never."""
    return mode == 1 or (mode in (0, None) and max(rows, others) > DIRECT)


RULES: dict[str, Rule] = {
    "isfinite": _finite,
    "isposinf": _infinity(1.0),
    "isneginf": _infinity(-1.0),
    "nan_to_num": _only_numbers,
    "nansum": _without_nan("sum"),
    "nanmean": _without_nan("mean"),
    "special_entr": _entropy,
    "special_ndtr": _normal,
    "diff": _differences,
    "rot90": _quarter_turns,
    "take_along_dim": _along,
    "cdist": _distances,
}
