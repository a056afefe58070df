"""Places of numbers among sorted ones: ``bucketize`` and ``searchsorted``.

A place is the number of sorted numbers in front of it. Counting them is a sum like any other: it goes with
what comes before and after, and needs no step that waits for the step before. It takes as many comparisons as
there are sorted numbers, so searching among many of them stays a call of PyTorch.
"""

from __future__ import annotations

import math

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, extents

MOST_BOUNDS = 32
MOST_COMPARISONS = 1 << 24
"""However many sorted numbers there are: a few microseconds."""


def _counted(b: Builder, call: Call, bounds: Value, value: Value) -> Value | None:
    """The bounds that are not at ``value`` or behind it; with ``right``, that are not behind it. A NaN is
    behind all of them."""
    count = extents(bounds)[-1] if bounds.rank else 0
    many = count > MOST_BOUNDS and math.prod(extents(value)) * count > MOST_COMPARISONS
    if not count or many or call.get("sorter") is not None:
        return None
    right = call.get("right", False) or call.get("side") == "right"
    bounds = b.unsqueeze(bounds, bounds.rank - 1) if bounds.rank > 1 else bounds
    behind = b.pointwise("gt" if right else "ge", bounds, b.unsqueeze(value, value.rank))
    before = b.pointwise("logical_not", behind)
    return b.cast(b.reduce("sum", before, value.rank), call.dtype)


def _bucketize(b: Builder, call: Call) -> Lowered | None:
    value = call["self"]
    return _counted(b, call, call["boundaries"], value) if isinstance(value, Value) else None


def _searchsorted(b: Builder, call: Call) -> Lowered | None:
    """Sorted numbers of one row for all, or a row for each row that is looked for."""
    value, bounds = call["self"], call["sorted_sequence"]
    if not isinstance(value, Value) or (bounds.rank > 1 and bounds.rank != value.rank):
        return None
    return _counted(b, call, bounds, value)


RULES: dict[str, Rule] = {"bucketize": _bucketize, "searchsorted": _searchsorted}
