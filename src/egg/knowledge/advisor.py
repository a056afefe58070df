"""Which skills fit a step: the catalogue, asked with what the role is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from egg.core.evaluation import Refusal
from egg.core.roles import Brief, Skill
from egg.core.stage import Stage
from egg.hardware.gpus import Gpu, find
from egg.knowledge.assets import pattern_of
from egg.knowledge.context import Context, context_of
from egg.knowledge.select import TOKENS, Selected, judged
from egg.knowledge.skill import Catalogue, SkillStage
from egg.memory.standing import Standings, standings_for


@dataclass(frozen=True)
class KnowledgeAdvisor:
    """A :class:`egg.core.roles.Advisor` over a catalogue. It says the same for the same brief, always."""

    catalogue: Catalogue
    tokens: int = TOKENS
    """Room for the texts of what is offered."""
    lessons: Mapping[Stage, Standings] = field(default_factory=dict)
    """What memory records of each skill, by stage, when the run began."""
    gpu: Gpu | None = None
    """The row of the table, where it is not the one that the run's facts name."""

    def advise(self, brief: Brief) -> tuple[Skill, ...]:
        """The skills for a brief: for repairs where a file of this step was refused, else for the stage."""
        return tuple(offer(found) for found in self.verdicts(brief) if found.offered)

    def verdicts(self, brief: Brief) -> tuple[Selected, ...]:
        """The same for every skill of the catalogue, those that are not offered included."""
        context = self.context(brief)
        refusal = open_refusal(brief)
        if refusal is not None:
            return judged(
                self.catalogue,
                context,
                SkillStage.DEBUGGING,
                tokens=self.tokens,
                failure=refusal.reason,
            )
        stage = brief.assignment.stage
        return judged(
            self.catalogue,
            context,
            stage,
            tokens=self.tokens,
            lessons=standings_for(brief, self.lessons),
            steps=brief.trajectory.steps,
            base=brief.base.candidate.hash if brief.base is not None else None,
        )

    def context(self, brief: Brief) -> Context:
        """What the conditions look at: for a repair the file that failed and the size of its error."""
        gpu = self.gpu or find(brief.facts.gpu.name)
        refusal = open_refusal(brief)
        failed = brief.failed if refusal is not None else None
        built_on = failed or (brief.base.candidate if brief.base is not None else None)
        source = built_on.source if built_on is not None else None
        return context_of(brief.facts, brief.diagnosis, source, gpu, brief.policy, refusal)


def open_refusal(brief: Brief) -> Refusal | None:
    """The judge's refusal of the last file of this step; ``None`` where nothing waits for a repair."""
    chain = brief.trajectory.chain
    return chain[-1].refusal if chain else None


def offer(found: Selected) -> Skill:
    """A verdict as a role reads it: the number that decided, what it promises, what was seen of it."""
    skill = found.skill
    reason = f"{found.reason}; promises {skill.gain}x"
    if found.remembered:
        reason += f"; remembered: {found.remembered}"
    if found.tried:
        steps = ", ".join(str(number) for number in found.tried)
        reason += f"; tried on this base without a gain in step {steps}"
    pattern = pattern_of(skill.assets[0]) if skill.assets else ""
    return Skill(skill.name, skill.description, skill.body, reason, pattern)
