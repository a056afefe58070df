"""Which skills are offered in a stage: those that apply, the most promising first, as far as there is room.

A skill applies where its stage, hardware and operators are, its veto does not hold and its gate
does. Those that apply are ranked by how clearly the gate holds, times what the skill promises (on a
log scale, as speedups multiply), times what memory says of it, times what this run has seen of it.
The best are offered, one by one, while their texts fit. Nothing is left to chance: equal scores go
by name, and every skill, offered or not, gets a verdict that names the number that decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from egg.core.stage import Stage
from egg.core.step import Decision, Step
from egg.core.tokens import estimate_tokens
from egg.knowledge.context import Context
from egg.knowledge.skill import SkillFile, SkillStage
from egg.memory.standing import Standing

MOST = 6
"""Skills offered at once: a choice, not a library."""
DEFAULTS = 3
"""The same where no condition holds: skills for the program's operators."""
MENDING = 3
"""The same of debugging skills: there is one failure to mend."""
TOKENS = 5_000
"""Room for their texts where none is named: what a standard budget gives."""
BARELY = 0.25
"""What a gate counts that barely holds; one that holds by a factor of two or more counts 1. Thresholds of
gains lie close together (1.05, 1.2), so a skill must not vanish for being near its own."""
LEAST_GAIN = 1.01
"""A skill that promises nothing is still worth more than none."""
IN_VAIN = 0.25
"""What every try without a gain on the same base leaves of a rank: another way to do it may still work."""


class Cause(StrEnum):
    """What decided about a skill."""

    OFFERED = "offered"
    STAGE = "stage"
    HARDWARE = "hardware"
    FAMILY = "family"
    SIGNATURE = "signature"
    VETO = "veto"
    GATE = "gate"
    ROOM = "room"
    RANK = "rank"

    @property
    def applies(self) -> bool:
        """Whether the skill is one for this moment, offered or not."""
        return self in (Cause.OFFERED, Cause.ROOM, Cause.RANK)


@dataclass(frozen=True)
class Selected:
    """A skill and what came of it; the numbers are 0 where it does not apply."""

    skill: SkillFile
    cause: Cause
    reason: str
    """The deciding comparison, with its value."""
    strength: float = 0.0
    score: float = 0.0
    weight: float = 1.0
    """What memory makes of its rank; 1 changes nothing."""
    remembered: str = ""
    """What memory says, in words."""
    tried: tuple[int, ...] = ()
    """Steps that followed it on this base without a gain."""
    tokens: int = 0

    @property
    def clearness(self) -> float:
        """How clearly the gate holds, from :data:`BARELY` to 1: the first factor of its rank."""
        return BARELY + (1 - BARELY) * self.strength

    @property
    def offered(self) -> bool:
        return self.cause is Cause.OFFERED


def judged(
    catalogue: Iterable[SkillFile],
    context: Context,
    stage: Stage | SkillStage,
    *,
    tokens: int = TOKENS,
    lessons: Mapping[str, Standing] | None = None,
    steps: Sequence[Step] = (),
    base: str | None = None,
    failure: str = "",
    most: int | None = None,
) -> tuple[Selected, ...]:
    """A verdict on every skill: those that apply by rank, then the others by name.

    ``lessons`` are what memory says of each skill, ``steps`` what this run did in the stage so
    far, and ``base`` what it builds on. ``failure`` is the reason of the refusal that is to be
    repaired, as the judge names it (``correctness.error``): it chooses among the debugging skills.
    ``most`` is how many are offered at most; by default what the stage has room for.
    """
    remembered = lessons or {}
    found = [
        _ranked(_applied(skill, context, stage, failure), remembered.get(skill.name), steps, base)
        for skill in sorted(catalogue, key=lambda skill: skill.name)
    ]
    found.sort(key=lambda one: (not one.cause.applies, -one.score, one.skill.name))
    if stage is not SkillStage.DEBUGGING and not any(one.cause.applies for one in found):
        found = _with_defaults(found, context, remembered, steps, base)
    if most is None:
        most = MENDING if stage is SkillStage.DEBUGGING else MOST
    return tuple(_fitted(found, tokens, most))


# -- does it apply? --------------------------------------------------------------------------------


def _applied(skill: SkillFile, context: Context, stage: Stage | SkillStage, failure: str) -> Selected:
    """The first thing against it, or the gate's own reason for it."""
    if not skill.serves(stage):
        return Selected(skill, Cause.STAGE, f"for {_listed(skill.stages)}, not {stage.value}")
    if not skill.runs_on(str(context["vendor"]), str(context["arch"])):
        wanted = _listed(hardware.text for hardware in skill.hardware)
        return Selected(skill, Cause.HARDWARE, f"for {wanted}, and the GPU is {context['arch']}")
    if against := _no_operator(skill, context):
        return Selected(skill, Cause.FAMILY, against)
    if stage is SkillStage.DEBUGGING and not skill.mends(failure):
        return Selected(skill, Cause.SIGNATURE, f"for {_listed(skill.signatures)}, not {failure or 'this'}")
    if skill.veto is not None and (barred := skill.veto.evaluate(context)).holds:
        return Selected(skill, Cause.VETO, barred.reason)
    outcome = skill.gate.evaluate(context)
    if not outcome.holds:
        return Selected(skill, Cause.GATE, outcome.reason)
    reason = f"refused with {failure}" if stage is SkillStage.DEBUGGING else outcome.reason
    return Selected(skill, Cause.OFFERED, reason, strength=outcome.strength)


def _no_operator(skill: SkillFile, context: Context) -> str:
    """Why none of its operators is in the program; empty where one is, or where it is for any."""
    families = [family.value for family in skill.families]
    if not families or any(context[f"has_{family}"] for family in families):
        return ""
    if not context["program_known"]:
        return f"for {_listed(families)}, and the program's operators are not known"
    return f"no {' or '.join(families)} in the program"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in items)


# -- how promising is it? --------------------------------------------------------------------------


def _ranked(found: Selected, standing: Standing | None, steps: Sequence[Step], base: str | None) -> Selected:
    if not found.cause.applies:
        return found
    skill = found.skill
    tried = tuple(
        step.number
        for step in steps
        if step.plan is not None
        and step.plan.skill == skill.name
        and step.base == base
        and step.decision is not Decision.PROMOTED
    )
    weight = standing.weight if standing is not None else 1.0
    promised = math.log(max(skill.gain.expected, LEAST_GAIN))
    score = found.clearness * promised * weight * IN_VAIN ** len(tried)
    return replace(
        found,
        score=round(score, 6),
        weight=weight,
        remembered=standing.sentence if standing is not None and standing.tried else "",
        tried=tried,
        tokens=estimate_tokens(skill.body),
    )


def _with_defaults(
    found: Sequence[Selected],
    context: Context,
    remembered: Mapping[str, Standing],
    steps: Sequence[Step],
    base: str | None,
) -> list[Selected]:
    """Where no condition holds: the skills for the program's own operators, the largest share first.

    A condition that rests on a model of the limiter can be wrong about all of them at once. Skills for any
    operator stay out, and so does what a veto, the hardware or another operator is against.
    """

    def share(one: Selected) -> float:
        return max((float(context[f"{family.value}_share"]) for family in one.skill.families), default=0.0)

    apt = [one for one in found if one.cause is Cause.GATE and one.skill.families]
    apt.sort(key=lambda one: (-share(one), -one.skill.gain.expected, one.skill.name))
    chosen = {
        one.skill.name: _ranked(
            replace(
                one, cause=Cause.OFFERED, reason=f"no condition holds in this stage; its own: {one.reason}"
            ),
            remembered.get(one.skill.name),
            steps,
            base,
        )
        for one in apt[:DEFAULTS]
    }
    first = [chosen[one.skill.name] for one in apt[:DEFAULTS]]
    return [*first, *(one for one in found if one.skill.name not in chosen)]


def _fitted(found: Iterable[Selected], tokens: int, most: int) -> Iterable[Selected]:
    """Offer down the list while there is room; a text that is too long leaves its place to a shorter one."""
    left, offered = tokens, 0
    for one in found:
        if not one.cause.applies:
            yield one
        elif offered >= most:
            yield replace(one, cause=Cause.RANK, reason=f"{one.reason}; {most} rank higher")
        elif one.tokens > left:
            shown = f"{one.reason}; its text has {one.tokens} tokens, {left} are left"
            yield replace(one, cause=Cause.ROOM, reason=shown)
        else:
            left, offered = left - one.tokens, offered + 1
            yield one
