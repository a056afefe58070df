"""Identities that hold for every input, each a small function from a node to what may stand in its place."""

from __future__ import annotations

from egg.expert.algebra import (
    amplified,
    attention,
    choices,
    contractions,
    convolutions,
    gathered_products,
    grouped_heads,
    literals,
    pointwise,
    pools,
    recurrences,
    reductions,
    views,
    writes,
)
from egg.expert.algebra.rewrite import Rewrite, Rule

RULES: tuple[Rule, ...] = (
    *views.RULES,
    *writes.RULES,
    *literals.RULES,
    *pointwise.RULES,
    *reductions.RULES,
    *choices.RULES,
    *recurrences.RULES,
    *attention.RULES,
    *grouped_heads.RULES,
    *convolutions.RULES,
    *amplified.RULES,
    *pools.RULES,
)

LATE: tuple[Rule, ...] = (*contractions.RULES, *gathered_products.RULES)
"""Those that look through views, once these are as few as they can be."""

__all__ = ["LATE", "RULES", "Rewrite", "Rule"]
