"""PyTorch's operators in a few normal forms: one file per family, one table over them all.

A *rule* takes the builder of a graph and one call of an ATen operator and returns the value (or values) of
its result, adding the nodes that compute it. Rules compose: a loss is written with the builder's own words
for differences, squares and means, so that fusion sees nothing but those.
"""

from __future__ import annotations

from egg.expert.graph import LITERAL
from egg.expert.reading.normal import (
    complexes,
    composed,
    interpolation,
    layers,
    losses,
    matrices,
    products,
    reductions,
    searches,
    selections,
    spectra,
    tables,
    views,
    writes,
)
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule
from egg.expert.reading.normal.library import library, literal

__all__ = ["RULES", "Builder", "Call", "Lowered", "lower"]

RULES: dict[str, Rule] = {
    **tables.RULES,
    **views.RULES,
    **interpolation.RULES,
    **reductions.RULES,
    **selections.RULES,
    **spectra.RULES,
    **complexes.RULES,
    **searches.RULES,
    **products.RULES,
    **matrices.RULES,
    **layers.RULES,
    **losses.RULES,
    **composed.RULES,
    **writes.RULES,
    LITERAL: literal,
}


def lower(builder: Builder, call: Call) -> Lowered:
    """The nodes of one call: by its rule; where it has none, or the rule declines, as a library call."""
    rule = RULES.get(call.name)
    lowered = rule(builder, call) if rule is not None else None
    return library(builder, call) if lowered is None else lowered
