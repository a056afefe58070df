"""Reductions, softmax, scans and gathers: everything that brings elements of one dimension together."""

from __future__ import annotations

import math

from egg.expert.graph import Operand, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, dimension, extents


def _reduce(fn: str) -> Rule:
    """``sum``, ``mean``, ``prod``, ``any``, ``all``; over everything where no dimension is named."""

    def rule(b: Builder, call: Call) -> Lowered:
        value = call["self"]
        if call.get("dtype") is not None and fn not in ("any", "all"):
            value = b.cast(value, call.dtype)
        dims, keepdim = call.get("dim"), call.get("keepdim", False)
        if not value.rank:
            return b.cast(value, call.dtype)
        return b.reduce(fn, value, dims, keepdim, dtype=call.dtype)

    return rule


def _extreme(fn: str) -> Rule:
    """Of two tensors; of one; or along a dimension, where the place is wanted as well."""

    def rule(b: Builder, call: Call) -> Lowered:
        value, pair = call["self"], {"max": "maximum", "min": "minimum"}[fn]
        if "other" in call.arguments:
            return b.pointwise(pair, value, call["other"], dtype=call.dtype)
        if not value.rank:
            found: Lowered = value
            return found if len(call.results) == 1 else [value, b.fill((), 0, "int64")]
        dims, keepdim = call.get("dim"), call.get("keepdim", False)
        best = b.reduce(fn, value, dims, keepdim)
        if len(call.results) == 1:
            return best
        return [best, b.reduce(f"arg{fn}", value, dims, keepdim)]

    return rule


def _both_extremes(b: Builder, call: Call) -> Lowered:
    value, dims, keepdim = call["self"], call.get("dim"), call.get("keepdim", False)
    return [b.reduce(fn, value, dims, keepdim) for fn in ("min", "max")]


def _place(fn: str) -> Rule:
    """Where the extreme is; without a dimension the place in the flat order."""

    def rule(b: Builder, call: Call) -> Lowered:
        value, keepdim = call["self"], call.get("keepdim", False)
        if call.get("dim") is None:
            found = b.reduce(fn, b.reshape(value, (-1,)), 0, False)
            return b.reshape(found, call.shape)
        return b.reduce(fn, value, call["dim"], keepdim)

    return rule


def _variance(b: Builder, call: Call) -> Value:
    value, unbiased = call["self"], call.arguments.get("unbiased")
    correction = call.get("correction", 1) if unbiased is None else int(unbiased)
    return b.reduce("var", value, call.get("dim"), call.get("keepdim", False), correction=correction)


def _var(b: Builder, call: Call) -> Lowered:
    return _variance(b, call)


def _std(b: Builder, call: Call) -> Lowered:
    return b.pointwise("sqrt", _variance(b, call))


def _var_mean(b: Builder, call: Call) -> Lowered:
    mean = b.reduce("mean", call["self"], call.get("dim"), call.get("keepdim", False))
    spread = _variance(b, call)
    return [spread if call.name == "var_mean" else b.pointwise("sqrt", spread), mean]


def _norm(b: Builder, call: Call) -> Lowered | None:
    """Vector norms of any order; a norm of everything where no dimension is named."""
    value = call["self"] if "self" in call.arguments else call["A"]
    order = call.arguments.get("p", call.arguments.get("ord", 2))
    order = 2 if order is None or order == "fro" else order
    if not isinstance(order, int | float):
        return None
    value = b.cast(value, call.dtype)
    dims = call.get("dim")
    if not value.rank:
        return b.pointwise("abs", value)
    return vector_norm(b, value, float(order), dims, call.get("keepdim", False))


def _matrix_norm(b: Builder, call: Call) -> Lowered | None:
    value, order = call["self"] if "self" in call.arguments else call["A"], call.get("ord", "fro")
    rank = len(extents(value))
    dims = call.get("dim", (-2, -1))
    if order != "fro" and not (order is None or (order == 2 and rank == 1)):
        return None
    return vector_norm(b, value, 2.0, dims, call.get("keepdim", False))


def vector_norm(b: Builder, value: Value, order: float, dims: object, keepdim: bool) -> Value:
    if math.isinf(order):
        return b.reduce("max" if order > 0 else "min", b.pointwise("abs", value), dims, keepdim)
    if order == 0:
        return b.reduce("sum", b.cast(b.pointwise("ne", value, 0), value.dtype), dims, keepdim)
    if order == 1:
        return b.reduce("sum", b.pointwise("abs", value), dims, keepdim)
    return b.reduce("norm", value, dims, keepdim, order=order)


def _logsumexp(b: Builder, call: Call) -> Lowered:
    return b.reduce("logsumexp", call["self"], call.get("dim"), call.get("keepdim", False), dtype=call.dtype)


def _softmax(log: bool) -> Rule:
    return lambda b, call: b.softmax(b.cast(call["self"], call.dtype), call["dim"], log)


def _softmin(b: Builder, call: Call) -> Lowered:
    return b.softmax(b.pointwise("neg", call["self"]), call["dim"])


def _scan(fn: str) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        value = b.cast(call["self"], call.dtype)
        if not value.rank or len(call.results) > 1:
            return None
        dim = dimension(call["dim"], value.rank)
        return b.one(
            "scan",
            [value],
            extents(value),
            value.dtype,
            call.name,
            fn=fn,
            dim=dim,
            reverse=False,
            exclusive=False,
        )

    return rule


def _count_nonzero(b: Builder, call: Call) -> Lowered:
    there = b.cast(b.pointwise("ne", call["self"], 0), "int64")
    return b.reduce("sum", there, call.get("dim"))


# -- gathers ---------------------------------------------------------------------------------------------


def _embedding(b: Builder, call: Call) -> Lowered | None:
    table, places = call["weight"], call["indices"]
    return b.one("gather", [table, places], call.shape, table.dtype, "embedding", how="embedding", dim=0)


BAGS = {0: "sum", 1: "mean"}
"""Modes of bags by their number."""


def _embedding_bag(b: Builder, call: Call) -> Lowered | None:
    """Bags of one size, one behind the other, are rows of places: a gather, and a sum along the rows.

    What the operator makes besides, for its gradient, is left to it; nothing reads it as a rule.
    """
    table, places, starts = call["weight"], call["indices"], call["offsets"]
    maker = b.producers.get(starts.name)
    first, size = maker.get("range", (None, 0)) if maker is not None else (None, 0)
    plain = not any(call.get(name) for name in ("scale_grad_by_freq", "sparse", "include_last_offset"))
    plain = plain and call.get("per_sample_weights") is None and call.get("padding_idx") is None
    (count,), (most,) = extents(starts), extents(places)
    if first != 0 or not plain or count * size != most or call.get("mode", 0) not in BAGS:
        return None
    width = extents(table)[1]
    rows = b.reshape(places, (count, size))
    found = b.one(
        "gather", [table, rows], (count, size, width), table.dtype, "embedding", how="embedding", dim=0
    )
    total = b.reduce(BAGS[call.get("mode", 0)], found, 1, False)
    given = (*(Operand(place) for place in range(3)), False, call.get("mode", 0))
    operator = {"target": "torch.embedding_bag", "arguments": given, "keywords": {}}
    beside = b.node("library", [table, places, starts], call.results, "embedding_bag", **operator)
    return [total, *beside[1:]]


def _index_select(b: Builder, call: Call) -> Lowered:
    value = call["self"]
    dim = dimension(call["dim"], value.rank)
    inputs = [value, call["index"]]
    return b.one("gather", inputs, call.shape, value.dtype, "index_select", how="index_select", dim=dim)


def _gather(b: Builder, call: Call) -> Lowered:
    value = call["self"]
    return gather(b, value, call["index"], call["dim"])


def gather(b: Builder, value: Value, index: Value, dim: int) -> Value:
    dim = dimension(dim, value.rank)
    return b.one("gather", [value, index], extents(index), value.dtype, "gather", how="gather", dim=dim)


def _index(b: Builder, call: Call) -> Lowered | None:
    """``x[:, rows]``: one list of places is a selection. Several lists, ``x[rows, columns]``, are one list of
    places in the dimensions that they mean, taken together; where others lie between those, PyTorch has the
    places in front of all others."""
    value, places = call["self"], call["indices"]
    given = [(dim, place) for dim, place in enumerate(places) if isinstance(place, Value)]
    if not given or any(place.dtype not in ("int64", "int32") for _, place in given):
        return None
    dims, shape = [dim for dim, _ in given], extents(value)
    lists = [
        b.where(b.pointwise("lt", place, 0), b.pointwise("add", place, shape[dim]), place)
        for dim, place in given
    ]
    dim, place = dims[0], lists[0]
    if len(given) > 1:
        for size, more in zip([shape[d] for d in dims[1:]], lists[1:], strict=True):
            place = b.pointwise("add", b.pointwise("mul", place, size), more)
        if dims != list(range(dim, dim + len(dims))):
            value, dim = b.permute(value, [*dims, *(d for d in range(value.rank) if d not in dims)]), 0
        shape = extents(value)
        behind = dim + len(dims)
        shape = (*shape[:dim], math.prod(shape[dim:behind]), *shape[behind:])
        value = b.reshape(value, shape)
    if dim == 0 and value.rank == 2:
        return b.one("gather", [value, place], call.shape, value.dtype, "embedding", how="embedding", dim=0)
    flat = b.reshape(place, (-1,))
    found = (*shape[:dim], *extents(flat), *shape[dim + 1 :])
    made = b.one("gather", [value, flat], found, value.dtype, "index_select", how="index_select", dim=dim)
    return b.reshape(made, call.shape)


def _softmax_data(b: Builder, call: Call) -> Lowered:
    return b.softmax(call["self"], call["dim"], call.name == "_log_softmax")


RULES: dict[str, Rule] = {
    **{fn: _reduce(fn) for fn in ("sum", "mean", "prod", "any", "all")},
    **{fn: _extreme(fn) for fn in ("max", "min")},
    "amax": _reduce("max"),
    "amin": _reduce("min"),
    "aminmax": _both_extremes,
    **{fn: _place(fn) for fn in ("argmax", "argmin")},
    "var": _var,
    "std": _std,
    **dict.fromkeys(["var_mean", "std_mean"], _var_mean),
    **dict.fromkeys(["norm", "linalg_vector_norm", "linalg_norm"], _norm),
    **dict.fromkeys(["frobenius_norm", "linalg_matrix_norm"], _matrix_norm),
    **dict.fromkeys(["logsumexp", "special_logsumexp"], _logsumexp),
    **dict.fromkeys(["softmax", "special_softmax"], _softmax(log=False)),
    **dict.fromkeys(["log_softmax", "special_log_softmax"], _softmax(log=True)),
    **dict.fromkeys(["_softmax", "_log_softmax"], _softmax_data),
    "softmin": _softmin,
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "logcumsumexp": _scan("logcumsumexp"),
    "count_nonzero": _count_nonzero,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    "index_select": _index_select,
    "gather": _gather,
    "index": _index,
}
