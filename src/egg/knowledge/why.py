"""Why each skill is offered or not, stage by stage: the whole answer as data, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from egg.core.bottleneck import Value
from egg.core.stage import Stage
from egg.knowledge.context import Context
from egg.knowledge.select import TOKENS, Cause, Selected, judged
from egg.knowledge.skill import Catalogue, SkillStage
from egg.memory.standing import Standings

STAGES = tuple(stage for stage in SkillStage if stage is not SkillStage.DEBUGGING)
"""Those that plans are made in, and the seed."""

AGAINST: Mapping[Cause, str] = {
    Cause.HARDWARE: "other hardware",
    Cause.FAMILY: "other operators",
    Cause.SIGNATURE: "another failure",
    Cause.VETO: "vetoed",
    Cause.GATE: "gate",
    Cause.ROOM: "no room",
    Cause.RANK: "outranked",
    Cause.STAGE: "another stage",
    Cause.OFFERED: "offered",
}
"""What is against a skill, in a word or two."""


@dataclass(frozen=True)
class Answer:
    """One stage: a verdict on each of its skills, offered ones first, then by rank, then by name."""

    stage: SkillStage
    verdicts: tuple[Selected, ...]

    @property
    def offered(self) -> tuple[Selected, ...]:
        return tuple(one for one in self.verdicts if one.offered)


def explain(
    catalogue: Catalogue,
    context: Context,
    stages: Sequence[SkillStage] = STAGES,
    *,
    tokens: int = TOKENS,
    lessons: Mapping[Stage, Standings] | None = None,
    failure: str = "",
) -> tuple[Answer, ...]:
    """For each stage, every skill that is for it: chosen or not, and by which number."""
    remembered = {stage.value: known for stage, known in (lessons or {}).items()}
    answers = []
    for stage in stages:
        verdicts = judged(
            catalogue.of(stage),
            context,
            stage,
            tokens=tokens,
            lessons=remembered.get(stage.value),
            failure=failure,
        )
        answers.append(Answer(stage, tuple(sorted(verdicts, key=lambda one: not one.offered))))
    return tuple(answers)


def numbers(found: Selected) -> str:
    """What a rank is made of: ``0.80 x ln 1.90 x 1.20 = 0.62``; empty for a skill that does not apply."""
    if not found.cause.applies:
        return ""
    parts = [f"{found.clearness:.2f}", f"ln {found.skill.gain.expected:.2f}"]
    parts += [f"{found.weight:.2f} remembered"] if found.weight != 1 else []
    parts += [f"{len(found.tried)} tried in vain"] if found.tried else []
    return f"{' x '.join(parts)} = {found.score:.3f}"


def answer_json(answer: Answer) -> dict[str, Any]:
    return {
        "stage": answer.stage.value,
        "skills": [
            {
                "skill": one.skill.name,
                "offered": one.offered,
                "cause": one.cause.value,
                "reason": one.reason,
                "strength": round(one.strength, 4),
                "gain": [one.skill.gain.low, one.skill.gain.high],
                "weight": one.weight,
                "remembered": one.remembered or None,
                "score": one.score,
                "tokens": one.tokens,
                "origin": one.skill.origin,
            }
            for one in answer.verdicts
        ],
    }


def context_used(context: Context, catalogue: Catalogue) -> dict[str, Value]:
    """The values that any condition of the catalogue looks at, by name: what the verdicts rest on."""
    names: set[str] = set()
    for skill in catalogue:
        names |= skill.gate.names | (skill.veto.names if skill.veto is not None else frozenset())
    return {name: context[name] for name in sorted(names)}
