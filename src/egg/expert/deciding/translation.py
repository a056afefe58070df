"""Building on what torch.compile generated: a base that no recipe describes, beside the team's own kernel.

The engine asks for a translation where the team's own kernel is behind PyTorch. Where the translation wins,
it is the base. The team still knows its own kernel, so other structures of that one are weighed against the
translation: their predicted gain is divided by the lead that the translation has. In the tuning stages it
turns the constants of the file, as those of a file that a run was given
(:mod:`egg.expert.deciding.given`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from egg.core.plan import Plan
from egg.core.step import Attempt, Decision, Origin, Step
from egg.expert.deciding.given import FILE
from egg.expert.moves import Open, moves_in

NO_OWN_KERNEL = float("inf")
"""The lead where no kernel of the team's own was accepted: no structure of it promises a gain then."""


def is_translation(step: Step) -> bool:
    """Whether a step's file is a translation of what torch.compile generated."""
    return any(attempt.origin is Origin.TRANSLATION for attempt in step.attempts)


def turns_constants(plan: Plan | None) -> bool:
    """Whether a plan changes constants of a file by their names in it, and no recipe."""
    moves = moves_in(plan.change) if plan is not None else ()
    return bool(moves) and all(isinstance(move, Open) and move.group == FILE for move in moves)


def lead_of_translation(steps: Iterable[Step]) -> float | None:
    """How many times faster than the team's own kernel the base is, where that is a translation.

    ``None`` where the base is the team's own.
    """
    lead: float | None = None
    for step in steps:
        if step.decision is not Decision.PROMOTED:
            continue
        if is_translation(step):
            lead = step.gain.ratio if step.gain is not None else NO_OWN_KERNEL
        elif lead is not None and turns_constants(step.plan):
            lead *= step.gain.ratio if step.gain is not None else 1.0
        else:
            lead = None
    return lead


def own_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Without translations, which no recipe of the team explains."""
    return [attempt for attempt in attempts if attempt.origin is not Origin.TRANSLATION]
