"""Losses and distances: chains of differences, products and reductions under one name."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import (
    Builder,
    Call,
    Lowered,
    Number,
    Operand,
    Rule,
    dimension,
    extents,
)
from egg.expert.reading.normal.reductions import gather, vector_norm


def reduced(b: Builder, value: Value, reduction: Number) -> Value:
    """PyTorch's numbers for it: 0 leaves every element, 1 is the mean, 2 the sum."""
    if reduction == 0 or not value.rank:
        return value
    return b.reduce("mean" if reduction == 1 else "sum", value)


def _elementwise(loss: object) -> Rule:
    """A loss that is a function of each pair of elements, then reduced."""

    def rule(b: Builder, call: Call) -> Lowered:
        each: Value = loss(b, call["self"], call["target"], call)  # type: ignore[operator]
        return reduced(b, each, call["reduction"])

    return rule


def _squared(b: Builder, x: Value, target: Value, call: Call) -> Value:
    return b.pointwise("square", b.pointwise("sub", x, target))


def _absolute(b: Builder, x: Value, target: Value, call: Call) -> Value:
    return b.pointwise("abs", b.pointwise("sub", x, target))


def _smooth(b: Builder, x: Value, target: Value, call: Call) -> Value:
    """``d^2 / 2 beta`` below beta, ``d - beta / 2`` above."""
    beta = call["beta"]
    distance = _absolute(b, x, target, call)
    if beta == 0:
        return distance
    near = b.pointwise("mul", b.pointwise("square", distance), 0.5 / beta)
    far = b.pointwise("sub", distance, 0.5 * beta)
    return b.where(b.pointwise("lt", distance, float(beta)), near, far)


def _huber(b: Builder, x: Value, target: Value, call: Call) -> Value:
    delta = float(call["delta"])
    distance = _absolute(b, x, target, call)
    near = b.pointwise("mul", b.pointwise("square", distance), 0.5)
    far = b.pointwise("mul", b.pointwise("sub", distance, 0.5 * delta), delta)
    return b.where(b.pointwise("le", distance, delta), near, far)


def _hinge_embedding(b: Builder, x: Value, target: Value, call: Call) -> Value:
    margin = b.pointwise("clamp_min", b.pointwise("sub", float(call["margin"]), x), 0.0)
    zero = b.fill((), 0, x.dtype)
    apart = b.where(b.pointwise("ne", target, 1), margin, zero)
    return b.pointwise("add", apart, b.where(b.pointwise("ne", target, -1), x, zero))


def _soft_margin(b: Builder, x: Value, target: Value, call: Call) -> Value:
    return b.pointwise("log1p", b.pointwise("exp", b.pointwise("neg", b.pointwise("mul", target, x))))


def _kl_div(b: Builder, call: Call) -> Lowered:
    """``target * (log target - input)``; ``batchmean`` has been taken apart by PyTorch."""
    x, target = call["self"], call["target"]
    if call.get("log_target", False):
        each = b.pointwise("mul", b.pointwise("exp", target), b.pointwise("sub", target, x))
    else:
        each = b.pointwise("sub", b.pointwise("xlogy", target, target), b.pointwise("mul", target, x))
    return reduced(b, each, call["reduction"])


def _binary(b: Builder, call: Call) -> Lowered:
    """Logarithms are not let fall below -100, as PyTorch has it."""
    x, target = call["self"], call["target"]
    yes = b.pointwise("clamp_min", b.pointwise("log", x), -100.0)
    no = b.pointwise("clamp_min", b.pointwise("log1p", b.pointwise("neg", x)), -100.0)
    each = b.pointwise(
        "sub", b.pointwise("mul", b.pointwise("sub", target, 1.0), no), b.pointwise("mul", target, yes)
    )
    weight = call.get("weight")
    each = each if weight is None else b.pointwise("mul", each, weight)
    return reduced(b, each, call["reduction"])


def _binary_logits(b: Builder, call: Call) -> Lowered:
    """``(1 - t) x - w logsigmoid(x)``; ``w`` is 1, or ``1 + (p - 1) t`` with a weight for the positive."""
    x, target, positive = call["self"], call["target"], call.get("pos_weight")
    tail = b.pointwise("log_sigmoid", x)
    if positive is not None:
        extra = b.pointwise("mul", b.pointwise("sub", positive, 1.0), target)
        tail = b.pointwise("mul", b.pointwise("add", extra, 1.0), tail)
    each = b.pointwise("sub", b.pointwise("mul", b.pointwise("sub", 1.0, target), x), tail)
    weight = call.get("weight")
    each = each if weight is None else b.pointwise("mul", each, weight)
    return reduced(b, each, call["reduction"])


def _cross_entropy(b: Builder, call: Call) -> Lowered:
    """Targets are classes, or the probability of each class. Smoothing gives a part of the target to all
    classes alike."""
    x, target, weight = call["self"], call["target"], call.get("weight")
    smoothing, reduction = call.get("label_smoothing", 0.0), call["reduction"]
    dim = 0 if x.rank == 1 else 1
    logs = b.softmax(x, dim, log=True)
    weight = weight if weight is None else _along(b, weight, dim, x.rank)
    classes = extents(x)[dim]
    if "float" in target.dtype:
        if smoothing:
            target = b.pointwise("add", b.pointwise("mul", target, 1.0 - smoothing), smoothing / classes)
        target = target if weight is None else b.pointwise("mul", target, weight)
        each = b.pointwise("neg", b.reduce("sum", b.pointwise("mul", logs, target), dim))
        return reduced(b, each, reduction)
    picked = _Picked.at(b, target, dim, call.get("ignore_index", -100), weight)
    found = picked.reduced(picked.weighted(logs), reduction)
    if not smoothing:
        return found
    spread = logs if weight is None else b.pointwise("mul", logs, weight)
    every = picked.reduced(b.pointwise("neg", b.reduce("sum", spread, dim)), reduction)
    part = b.pointwise("mul", every, smoothing / classes)
    return b.pointwise("add", b.pointwise("mul", found, 1.0 - smoothing), part)


def _along(b: Builder, vector: Value, dim: int, rank: int) -> Value:
    return b.reshape(vector, [-1 if d == dim else 1 for d in range(rank)])


def _nll(b: Builder, call: Call) -> Lowered | None:
    if len(call.results) > 1:
        return None
    x, weight = call["self"], call.get("weight")
    dim = 0 if x.rank == 1 else 1
    weight = weight if weight is None else _along(b, weight, dim, x.rank)
    picked = _Picked.at(b, call["target"], dim, call.get("ignore_index", -100), weight)
    return picked.reduced(picked.weighted(x), call["reduction"])


@dataclass(frozen=True)
class _Picked:
    """Which class each target names.

    A target that is to be ignored is no valid place, so place 0 is read in its stead and counts as nothing.
    """

    b: Builder
    dim: int
    kept: Value
    place: Value
    weight: Value | None
    """Of the class that each target names."""

    @classmethod
    def at(cls, b: Builder, target: Value, dim: int, ignored: int, weight: Value | None) -> _Picked:
        kept = b.pointwise("ne", target, ignored)
        place = b.where(kept, target, b.fill((), 0, target.dtype))
        if weight is not None:
            weight = gather(b, b.reshape(weight, (-1,)), b.reshape(place, (-1,)), 0)
            weight = b.reshape(weight, extents(target))
        return cls(b, dim, kept, place, weight)

    def weighted(self, logs: Value) -> Value:
        """The logarithm at each target with the sign turned, times its class's weight."""
        b, shape = self.b, extents(self.place)
        found = b.reshape(gather(b, logs, b.unsqueeze(self.place, self.dim), self.dim), shape)
        found = b.pointwise("neg", found)
        return found if self.weight is None else b.pointwise("mul", found, self.weight)

    def reduced(self, each: Value, reduction: Number) -> Value:
        """The mean is over the targets that count, each by its weight."""
        b = self.b
        each = b.where(self.kept, each, b.fill((), 0, each.dtype))
        if reduction != 1:
            return reduced(b, each, reduction)
        total = b.reduce("sum", each) if each.rank else each
        counted = b.cast(self.kept, each.dtype)
        if self.weight is not None:
            counted = b.where(self.kept, self.weight, b.fill((), 0, self.weight.dtype))
        return b.pointwise("div", total, b.reduce("sum", counted) if counted.rank else counted)


# -- distances -------------------------------------------------------------------------------------------


def pairwise_distance(b: Builder, x: Operand, y: Value, p: float, eps: float, keepdim: bool = False) -> Value:
    """The norm of ``x - y + eps`` along the last dimension."""
    apart = b.pointwise("add", b.pointwise("sub", x, y), eps)
    return vector_norm(b, apart, float(p), -1, keepdim)


def _pairwise(b: Builder, call: Call) -> Lowered:
    return pairwise_distance(b, call["x1"], call["x2"], call["p"], call["eps"], call["keepdim"])


MOST_FEATURES = 16
"""Of points whose distances are computed pair by pair; more of them are better a product."""


def _cdist(b: Builder, call: Call) -> Lowered | None:
    """Distances of all pairs. Of points with few coordinates each pair is a short sum, which joins whatever
    follows."""
    x, y, p = call["x1"], call["x2"], float(call["p"])
    if extents(x)[-1] > MOST_FEATURES or p not in (1.0, 2.0):
        return None
    apart = b.pointwise("sub", b.unsqueeze(x, x.rank - 1), b.unsqueeze(y, y.rank - 2))
    return vector_norm(b, apart, p, -1, keepdim=False)


def _triplet(b: Builder, call: Call) -> Lowered:
    anchor, positive, negative = call["anchor"], call["positive"], call["negative"]
    p, eps, margin = call["p"], call["eps"], float(call["margin"])
    near = pairwise_distance(b, anchor, positive, p, eps)
    far = pairwise_distance(b, anchor, negative, p, eps)
    if call["swap"]:
        far = b.pointwise("minimum", far, pairwise_distance(b, positive, negative, p, eps))
    each = b.pointwise("clamp_min", b.pointwise("sub", b.pointwise("add", near, margin), far), 0.0)
    return reduced(b, each, call["reduction"])


def _cosine(b: Builder, call: Call) -> Lowered:
    """Each norm is kept away from zero by itself."""
    x, y, eps = call["x1"], call["x2"], call["eps"]
    shape = torch.broadcast_shapes(extents(x), extents(y))
    dim = dimension(call["dim"], len(shape))
    x, y = b.expand(x, shape), b.expand(y, shape)
    dot = b.reduce("sum", b.pointwise("mul", x, y), dim)
    lengths = [b.pointwise("clamp_min", vector_norm(b, v, 2.0, dim, False), eps) for v in (x, y)]
    return b.pointwise("div", dot, b.pointwise("mul", *lengths))


def _cosine_embedding(b: Builder, call: Call) -> Lowered:
    """PyTorch adds a tiny number to the squares here, instead of keeping norms from zero."""
    x, y, target = call["input1"], call["input2"], call["target"]
    dot = b.reduce("sum", b.pointwise("mul", x, y), -1)
    squares = [b.pointwise("add", b.reduce("sum", b.pointwise("square", v), -1), 1e-12) for v in (x, y)]
    cosine = b.pointwise("div", dot, b.pointwise("sqrt", b.pointwise("mul", *squares)))
    zero = b.fill((), 0, cosine.dtype)
    near = b.where(b.pointwise("eq", target, 1), b.pointwise("sub", 1.0, cosine), zero)
    margin = b.pointwise("clamp_min", b.pointwise("sub", cosine, float(call["margin"])), 0.0)
    far = b.where(b.pointwise("eq", target, -1), margin, zero)
    return reduced(b, b.pointwise("add", near, far), call["reduction"])


def _margin_ranking(b: Builder, call: Call) -> Lowered:
    apart = b.pointwise("sub", call["input1"], call["input2"])
    signed = b.pointwise("mul", b.pointwise("neg", call["target"]), apart)
    each = b.pointwise("clamp_min", b.pointwise("add", signed, float(call["margin"])), 0.0)
    return reduced(b, each, call["reduction"])


RULES: dict[str, Rule] = {
    "mse_loss": _elementwise(_squared),
    "l1_loss": _elementwise(_absolute),
    "smooth_l1_loss": _elementwise(_smooth),
    "huber_loss": _elementwise(_huber),
    "hinge_embedding_loss": _elementwise(_hinge_embedding),
    "soft_margin_loss": _elementwise(_soft_margin),
    "kl_div": _kl_div,
    "binary_cross_entropy": _binary,
    "binary_cross_entropy_with_logits": _binary_logits,
    "cross_entropy_loss": _cross_entropy,
    **dict.fromkeys(["nll_loss", "nll_loss_nd", "nll_loss2d"], _nll),
    "pairwise_distance": _pairwise,
    "cdist": _cdist,
    "triplet_margin_loss": _triplet,
    "cosine_similarity": _cosine,
    "cosine_embedding_loss": _cosine_embedding,
    "margin_ranking_loss": _margin_ranking,
}
