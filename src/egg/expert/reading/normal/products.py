"""Products of matrices in all their spellings, ``einsum`` among them, as ``matmul`` and views."""

from __future__ import annotations

import math
from collections.abc import Sequence

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, dimension, extents


def _linear(b: Builder, call: Call) -> Lowered:
    weight = call["weight"]
    if weight.rank == 1:
        return b.matmul(call["input"], weight, call.get("bias"))
    return b.matmul(call["input"], b.transpose(weight), call.get("bias"))


def _bilinear(b: Builder, call: Call) -> Lowered:
    """``y[.., o] = sum_ij x1[.., i] w[o, i, j] x2[.., j]``: first the product with ``w``, then the sum."""
    first, second, weight, bias = call["input1"], call["input2"], call["weight"], call.get("bias")
    *lead, inner = extents(first)
    outputs, _, width = extents(weight)
    flat = b.reshape(b.permute(weight, (1, 0, 2)), (inner, outputs * width))
    half = b.reshape(b.matmul(b.reshape(first, (-1, inner)), flat), (*lead, outputs, width))
    scaled = b.pointwise("mul", half, b.unsqueeze(second, -2))
    total = b.reduce("sum", scaled, -1)
    return total if bias is None else b.pointwise("add", total, bias)


def _product(first: str, second: str) -> Rule:
    return lambda b, call: b.matmul(call[first], call[second])


def _whole(b: Builder, call: Call) -> Lowered:
    """Numbers of eight bits, added up in 32."""
    return b.matmul(call["self"], call["mat2"], dtype=call.dtype)


def _added(first: str, second: str) -> Rule:
    """``beta * self + alpha * a @ b``; plain ones keep the sum as the product's bias."""

    def rule(b: Builder, call: Call) -> Lowered:
        bias, beta, alpha = call["self"], call.get("beta", 1), call.get("alpha", 1)
        if (beta, alpha) == (1, 1) and call.name != "addbmm":
            return b.matmul(call[first], call[second], _fitted(b, call, bias))
        product = b.matmul(call[first], call[second])
        product = b.reduce("sum", product, 0) if call.name == "addbmm" else product
        product = b.pointwise("mul", product, alpha) if alpha != 1 else product
        if beta == 0:
            return product
        return b.pointwise("add", b.pointwise("mul", bias, beta) if beta != 1 else bias, product)

    return rule


def _fitted(b: Builder, call: Call, bias: Value) -> Value:
    """A vector that is added to a product with a vector stands in a column then."""
    return b.unsqueeze(bias, -1) if call.name == "addmv" and bias.rank == 1 else bias


def _dot(b: Builder, call: Call) -> Lowered:
    other = call.get("tensor", call.get("other", call.get("vec2")))
    return b.reduce("sum", b.pointwise("mul", call["self"], other))


def _outer(b: Builder, call: Call) -> Lowered:
    return b.pointwise("mul", b.unsqueeze(call["self"], 1), call["vec2"])


def _tensordot(b: Builder, call: Call) -> Lowered:
    first, second = call["self"], call["other"]
    out, inner = (
        [d % v.rank for d in call[name]] for v, name in ((first, "dims_self"), (second, "dims_other"))
    )
    rows = [d for d in range(first.rank) if d not in out]
    columns = [d for d in range(second.rank) if d not in inner]
    depth = math.prod(extents(first)[d] for d in out)
    left = b.merged(b.permute(first, (*rows, *out)), (-1, depth))
    right = b.merged(b.permute(second, (*inner, *columns)), (depth, -1))
    return b.reshape(b.matmul(left, right), call.shape)


def _einsum(b: Builder, call: Call) -> Lowered | None:
    """Two operands at a time: sum what only one of them has, multiply, and put the dimensions in order."""
    parsed = _parsed(call["equation"], [v.rank for v in call["tensors"]])
    if parsed is None:
        return None
    terms, result = parsed
    values = list(call["tensors"])
    if any(len(set(term)) != len(term) for term in terms) or any("complex" in v.dtype for v in values):
        return None
    first, letters = values[0], terms[0]
    for place in range(1, len(values)):
        later = set(result).union(*terms[place + 1 :])
        first, letters = _pair(b, first, letters, values[place], terms[place], later)
    first, letters = _summed(b, first, letters, set(result))
    return b.permute(first, [letters.index(c) for c in result])


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """Letters of each operand and of the result; an ellipsis becomes capital letters of its own."""
    text = equation.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    spare = [c for c in "ZYXWVUTSRQ" if c not in text]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    width = max((h for h, term in zip(hidden, terms, strict=True) if "..." in term), default=0)
    if width > len(spare):
        return None
    letters = "".join(spare[:width])
    named = [
        term.replace("...", letters[width - count :] if count else "")
        for term, count in zip(terms, hidden, strict=True)
    ]
    if not arrow:
        every = "".join(named)
        once = sorted(c for c in set(every) if every.count(c) == 1 and c not in letters)
        return named, letters + "".join(once)
    return named, result.replace("...", letters)


def _summed(b: Builder, value: Value, letters: str, needed: set[str]) -> tuple[Value, str]:
    gone = [place for place, letter in enumerate(letters) if letter not in needed]
    if not gone:
        return value, letters
    return b.reduce("sum", value, gone), "".join(c for c in letters if c in needed)


def _pair(b: Builder, x: Value, of_x: str, y: Value, of_y: str, later: set[str]) -> tuple[Value, str]:
    x, of_x = _summed(b, x, of_x, later | set(of_y))
    y, of_y = _summed(b, y, of_y, later | set(of_x))
    size = {**dict(zip(of_x, extents(x), strict=True)), **dict(zip(of_y, extents(y), strict=True))}
    wide = {c for c in set(of_x) & set(of_y) if extents(x)[of_x.index(c)] != extents(y)[of_y.index(c)]}
    shared = [c for c in of_x if c in of_y]
    depth = [c for c in shared if c not in later and c not in wide]
    batch = [c for c in shared if c not in depth]
    rows, columns = [c for c in of_x if c not in of_y], [c for c in of_y if c not in of_x]
    if wide or not depth:
        return _broadcast_product(b, x, of_x, y, of_y)
    left = b.permute(x, [of_x.index(c) for c in (*batch, *rows, *depth)])
    right = b.permute(y, [of_y.index(c) for c in (*batch, *depth, *columns)])
    lead = [size[c] for c in batch]
    m, k, n = (math.prod(size[c] for c in group) for group in (rows, depth, columns))
    made = b.matmul(b.merged(left, (*lead, m, k)), b.merged(right, (*lead, k, n)))
    letters = "".join((*batch, *rows, *columns))
    return b.reshape(made, [size[c] for c in letters]), letters


def _broadcast_product(b: Builder, x: Value, of_x: str, y: Value, of_y: str) -> tuple[Value, str]:
    """Nothing is summed: both operands in one order of dimensions, ones where a letter is missing."""
    letters = of_x + "".join(c for c in of_y if c not in of_x)
    aligned = []
    for value, own in ((x, of_x), (y, of_y)):
        ordered = b.permute(value, [own.index(c) for c in letters if c in own])
        sizes = dict(zip(own, extents(value), strict=True))
        aligned.append(b.reshape(ordered, [sizes.get(c, 1) for c in letters]))
    return b.pointwise("mul", *aligned), letters


def _cross(b: Builder, call: Call) -> Lowered:
    """Products of vectors in space: ``a[i + 1] * b[i + 2] - a[i + 2] * b[i + 1]``, counted modulo 3."""
    x, y = (b.expand(call[name], call.shape) for name in ("self", "other"))
    given = call.get("dim")
    dim = call.shape.index(3) if given is None else dimension(given, x.rank)
    (x0, x1, x2), (y0, y1, y2) = ([b.slice(v, dim, at, 1) for at in range(3)] for v in (x, y))
    pairs = ((x1, y2, x2, y1), (x2, y0, x0, y2), (x0, y1, x1, y0))
    parts = [b.pointwise("sub", b.pointwise("mul", p, q), b.pointwise("mul", r, s)) for p, q, r, s in pairs]
    return b.cat(parts, dim)


RULES: dict[str, Rule] = {
    **dict.fromkeys(["cross", "linalg_cross"], _cross),
    "linear": _linear,
    "bilinear": _bilinear,
    "matmul": _product("self", "other"),
    **dict.fromkeys(["mm", "bmm"], _product("self", "mat2")),
    "mv": _product("self", "vec"),
    "_int_mm": _whole,
    "addmm": _added("mat1", "mat2"),
    "baddbmm": _added("batch1", "batch2"),
    "addbmm": _added("batch1", "batch2"),
    "addmv": _added("mat", "vec"),
    **dict.fromkeys(["dot", "vdot", "inner"], _dot),
    **dict.fromkeys(["outer", "ger"], _outer),
    "tensordot": _tensordot,
    "einsum": _einsum,
}
