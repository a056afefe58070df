"""The parts of a run that an experiment may leave out, and the settings of a run without them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from egg.core.errors import UsageError
from egg.core.settings import Settings
from egg.core.stage import Stage

STAGING = "staging"
CONTRACT = "contract"
DEBUGGER = "debugger"
SKILLS = "skills"
SHORT_MEMORY = "short-memory"
LONG_MEMORY = "long-memory"
EVIDENCE = "evidence"
FEW_SHOT = "few-shot"
WIDTH = "width"
TOOLS = "tools"
EDITS = "edits"
COMPILED = "compiled"

SKIPPED_STAGES = tuple(stage.value for stage in (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY))
PARTS = {
    "structure": "the stage that decides the structure; the first kernel's is kept",
    "mapping": "the stage that spreads the work over the GPU",
    "tiling": "the stage that chooses tiles",
    "memory": "the stage that chooses how memory is accessed",
    STAGING: "the order of stages: one stage in which every kind of change is allowed, without a contract",
    CONTRACT: "the contract that holds the tuning stages to the structure",
    DEBUGGER: "the debugger: a repair has only the judge's evidence and hint",
    SKILLS: "expert skills",
    SHORT_MEMORY: "what this run tried before, in prompts",
    LONG_MEMORY: "lessons and kernels of earlier runs",
    EVIDENCE: "the diagnosis of the base, its counters, and the compiler's figures",
    FEW_SHOT: "the example, the patterns of skills and kernels of like programs",
    WIDTH: "several drafts of one question",
    TOOLS: "tools of the coder and the debugger",
    EDITS: "edits: every reply is a whole file",
    COMPILED: "what torch.compile generated: in prompts, and translated as a candidate",
}
"""Every part with what it is."""
OF_A_MODEL = frozenset({DEBUGGER, SHORT_MEMORY, EVIDENCE, FEW_SHOT, WIDTH, TOOLS, EDITS, STAGING})
"""Parts that only a team that is asked in prompts has."""


def parts_named(text: str | None, team: str) -> tuple[str, ...]:
    """Read ``--without PART[,PART]``: the parts in the order of the table."""
    if text is None:
        return ()
    named = [part.strip() for part in text.split(",")]
    for part in named:
        if part not in PARTS:
            raise UsageError(f"--without has no part {part!r}", f"the parts are {', '.join(PARTS)}")
    if team == "expert" and (idle := [part for part in named if part in OF_A_MODEL]):
        raise UsageError(
            f"--without {','.join(idle)} has no effect: the expert team asks no model",
            "leave it out, or use --team llm, hybrid or step",
        )
    if STAGING in named and (stages := [part for part in named if part in SKIPPED_STAGES]):
        raise UsageError(
            f"--without {STAGING} leaves no stage {' or '.join(stages)} to leave out", "leave one of them out"
        )
    return in_order(named)


def in_order(named: Iterable[str]) -> tuple[str, ...]:
    found = set(named)
    return tuple(part for part in PARTS if part in found)


def reduced(settings: Settings) -> Settings:
    """The settings with everything set to nothing that is left out; the same when it is done again."""
    without, budget = settings.without, settings.budget
    if STAGING in without:
        later = sum(count for stage, count in budget.steps.items() if stage is not Stage.SEED)
        steps = {Stage.SEED: budget.steps.get(Stage.SEED, 0), Stage.STRUCTURE: later}
        budget = replace(budget, steps=steps)
    if TOOLS in without:
        budget = replace(budget, tool_calls=0)
    return replace(
        settings,
        budget=budget,
        width=1 if WIDTH in without else settings.width,
        skills=None if SKILLS in without else settings.skills,
        lessons=None if LONG_MEMORY in without else settings.lessons,
        compiled="" if COMPILED in without else settings.compiled,
    )
