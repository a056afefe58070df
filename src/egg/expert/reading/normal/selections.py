"""The first elements of rows in order: ``topk`` and ``sort``, with their places."""

from __future__ import annotations

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, dimension, extents


def _selected(b: Builder, value: Value, count: int, dim: int, largest: bool, stem: str) -> list[Value]:
    """Values and places of the first ``count`` elements along a dimension."""
    dim = dimension(dim, value.rank)
    shape = (*extents(value)[:dim], count, *extents(value)[dim + 1 :])
    whole = stem != "topk"
    results = [(shape, value.dtype), (shape, "int64")]
    return b.node("selection", [value], results, stem, dim=dim, largest=largest, whole=whole)


def _topk(b: Builder, call: Call) -> Lowered | None:
    """Sorted also where that is not asked for: any order is right then."""
    value = call["self"]
    if not value.rank or not call["k"]:
        return None
    return _selected(b, value, call["k"], call.get("dim", -1), call.get("largest", True), "topk")


def _sort(places_only: bool) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        value = call["self"]
        if not value.rank or not value.shape[call.get("dim", -1)].value:
            return None
        dim = dimension(call.get("dim", -1), value.rank)
        made = _selected(b, value, extents(value)[dim], dim, call.get("descending", False), "sort")
        return made[1] if places_only else made

    return rule


RULES: dict[str, Rule] = {"topk": _topk, "sort": _sort(False), "argsort": _sort(True)}
