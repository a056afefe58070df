"""Fit a text into a token budget by shortening its passages in a fixed order.

A passage has wordings from the fullest to the shortest; the last may be empty, which leaves
it out. Shortening goes in rounds: every passage loses its details before any is left out,
and within a round the least valuable goes first. What may never go is not a passage: the
writer puts it around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from egg.core.tokens import estimate_tokens


@dataclass(frozen=True)
class Passage:
    """One thing worth telling. ``value`` orders passages: the smallest is shortened first."""

    wordings: tuple[str, ...]
    value: tuple[int, ...]


def fit(passages: Sequence[Passage], compose: Callable[[Sequence[str]], str], budget_tokens: int) -> str:
    """The fullest text, among those reached by shortening in order, that is within the budget.

    ``compose`` writes the whole text around the chosen wordings (an empty one was left out).
    If even the shortest text is too long, that one is returned: what remains may not go.
    """
    chosen = [0] * len(passages)

    def text() -> str:
        return compose([p.wordings[level] for p, level in zip(passages, chosen, strict=True)])

    whole = text()
    for index, level in _shortenings(passages):
        if estimate_tokens(whole) <= budget_tokens:
            break
        chosen[index] = level
        whole = text()
    return whole


def _shortenings(passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Which passage goes to which wording, in order."""
    rounds = max((len(p.wordings) for p in passages), default=1)
    by_value = sorted(range(len(passages)), key=lambda i: passages[i].value)
    return [(i, level) for level in range(1, rounds) for i in by_value if level < len(passages[i].wordings)]
