"""Degrees of care: what each level of an evaluation spends."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.policy import Level


@dataclass(frozen=True)
class Care:
    """How many questions, how long, against whom."""

    seeds: int
    distributions: tuple[str, ...]
    reweighed: int
    """How many cases run under re-randomised weights."""
    opponents: tuple[str, ...]
    rounds: int
    round_milliseconds: float
    """Device time each contestant gets per round."""
    profile: bool
    sanitize: bool
    regrades: int
    input_sets: int = 3
    build_seconds: float = 120.0
    call_seconds: float = 60.0


ALL = ("normal", "uniform", "tiny", "large", "heavy", "sparse")

CARE = {
    Level.QUICK: Care(2, ("normal", "large"), 1, ("eager", "compile"), 8, 12.0, False, False, 0, 2),
    Level.FULL: Care(5, ALL, 2, ("eager", "compile", "reduce-overhead"), 24, 20.0, True, False, 1),
    Level.AUDIT: Care(8, ALL, 4, ("eager", "compile", "reduce-overhead"), 40, 25.0, True, True, 2),
}
