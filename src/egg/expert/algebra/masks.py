"""What is added to the scores of attention or chosen by, one after the other, as one mask.

A bias of places and a mask of padding, a table of distances and a triangle: programs apply them in several
steps, sometimes with the batch taken apart in between. Attention reads one mask. Numbers that are added are
added to each other; what is hidden is minus infinity in the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from egg.expert.algebra.rewrite import Draft
from egg.expert.graph import Graph
from egg.expert.sizes import ONE, Size

LOWEST = {"float16": -65504.0, "bfloat16": -3.3895313892515355e38, "float32": -3.4028234663852886e38}


@dataclass(frozen=True)
class Mask:
    """Which pairs count: numbers that are added, or truth values."""

    value: str
    hidden: bool = False
    """True marks those that do *not* take part."""
    scale: float | Size = 1.0
    """What numbers are multiplied with, as the scores are."""
    fill: float = -math.inf
    """The score of the others. A finite one is a weight of zero beside a score that is far above it, and the
    weight of every key in a row that sees none."""


def joins(graph: Graph, mask: Mask, shape: tuple[Size, ...]) -> bool:
    """Whether a mask can be one of several that scores of ``shape`` have: it broadcasts to them without its
    leading dimensions of one element, and what it hides is minus infinity."""
    own = _narrow(graph.value(mask.value).shape)
    fits = len(own) <= len(shape) and all(
        size in (ONE, other) for size, other in zip(reversed(own), reversed(shape), strict=False)
    )
    return fits and (graph.value(mask.value).dtype != "bool" or mask.fill == -math.inf)


def joined_masks(draft: Draft, *masks: Mask) -> str:
    """One value for all of them, of numbers to be added."""
    total: str | None = None
    kinds = {draft.value(mask.value).dtype for mask in masks} - {"bool"}
    dtype = "float32" if len(kinds) > 1 else next(iter(kinds), draft.graph.result(draft.node).dtype)
    for mask in sorted(masks, key=lambda one: draft.value(one.value).dtype == "bool"):
        name = _narrowed(draft, mask)
        shape = draft.value(name).shape
        if draft.value(name).dtype != "bool":
            if draft.value(name).dtype != dtype:
                name = draft.add("pointwise", [name], shape, "wider", dtype, fn="cast", scalars=())
            both = shape if total is None else _broadcast(shape, draft.value(total).shape)
            add = {"fn": "add", "scalars": ()}
            total = (
                name if total is None else draft.add("pointwise", [total, name], both, "mask", dtype, **add)
            )
            continue
        hidden = draft.add("constant", [], (), "hidden", dtype, fill=-math.inf)
        seen = total or draft.add("constant", [], (), "seen", dtype, fill=0.0)
        both = _broadcast(shape, draft.value(seen).shape)
        choices = (hidden, seen) if mask.hidden else (seen, hidden)
        total = draft.add("where", [name, *choices], both, "mask", dtype)
    assert total is not None
    return total


def _narrowed(draft: Draft, mask: Mask) -> str:
    """Without leading dimensions of one element, and scaled."""
    value = draft.value(mask.value)
    name, shape = value.name, _narrow(value.shape)
    if shape != value.shape:
        name = draft.add("view", [name], shape, "mask", value.dtype, how="reshape")
    if mask.scale == 1.0:
        return name
    return draft.add("pointwise", [name], shape, "scaled", value.dtype, fn="mul", scalars=(None, mask.scale))


def _narrow(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """At least rows and columns are left."""
    while len(shape) > 2 and shape[0] == ONE:
        shape = shape[1:]
    return shape


def _broadcast(one: tuple[Size, ...], other: tuple[Size, ...]) -> tuple[Size, ...]:
    rank = max(len(one), len(other))
    pairs = zip((ONE,) * (rank - len(one)) + one, (ONE,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a == ONE else a for a, b in pairs)
