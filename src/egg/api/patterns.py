"""Skills' runnable patterns, run: is each right, and does it compile for the GPUs that its skill is for?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from egg.evaluator.process.patterns import PatternRunner
from egg.hardware.gpus import Gpu, resolve, table
from egg.knowledge.check import Problem, examine, skill_folders
from egg.knowledge.skill import SkillFile

TARGETS = ("sm_80", "sm_90", "gfx942")
"""What a pattern is compiled for, as far as its skill is for them: the oldest and the newest that are in
wide use, and another vendor's."""


@dataclass(frozen=True)
class Pattern:
    """A file beside a skill, and the GPUs it must compile for."""

    file: Path
    skill: str
    gpus: tuple[Gpu, ...]

    @property
    def name(self) -> str:
        return f"{self.skill}/{self.file.name}"


def patterns_in(folders: Sequence[Path]) -> tuple[Pattern, ...]:
    """The patterns of every sound skill in ``folders``; what is wrong with the others is not their matter."""
    examined = (examine(own, str(folder)) for folder in folders for own in skill_folders(folder)[0])
    skills = [found.skill for found in examined if found.skill is not None]
    return tuple(Pattern(asset, skill.name, targets_of(skill)) for skill in skills for asset in skill.assets)


def targets_of(skill: SkillFile) -> tuple[Gpu, ...]:
    """Those of the usual targets that a skill is for; where it is none of them, the first GPU it is for."""
    usual = tuple(gpu for gpu in map(resolve, TARGETS) if skill.fits(gpu))
    return usual or tuple(gpu for gpu in table().gpus if skill.fits(gpu))[:1]


def problems_of(pattern: Pattern, runner: PatternRunner) -> tuple[Problem, ...]:
    """What running it shows to be wrong with it."""
    if not pattern.gpus:
        return (Problem(pattern.file, 1, "its skill is for no GPU that is known here"),)
    source = pattern.file.read_text(encoding="utf-8")
    return tuple(
        Problem(pattern.file, found.line, f"{found.reason}: {found.evidence}")
        for found in runner.problems(source, pattern.gpus)
    )


def run_patterns(patterns: Sequence[Pattern]) -> tuple[Problem, ...]:
    """What is wrong with any of them; they are run one after the other."""
    if not patterns:
        return ()
    with PatternRunner() as runner:
        return tuple(problem for pattern in patterns for problem in problems_of(pattern, runner))
