"""A skill as it was read: what it advises, where it belongs, and when it is worth trying."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from egg.core.errors import UsageError
from egg.core.evaluation import Gate
from egg.core.facts import Family
from egg.core.stage import CATEGORIES as stage_categories
from egg.core.stage import Category, Stage
from egg.hardware.gpus import VENDORS, Gpu
from egg.knowledge.condition import Condition

SKILL_FILE = "SKILL.md"
BUILT_IN = "built-in"
"""The origin of what ships with the package."""
SECTIONS = ("When", "How", "Expected", "Risks")
SIGNATURES = (*(gate.value for gate in Gate), "limits", "kernel", "candidate")
"""What a refusal's reason can begin with."""


class SkillStage(StrEnum):
    """Where a skill is of use: the stages that write kernels, and the repair of one that failed."""

    SEED = Stage.SEED.value
    STRUCTURE = Stage.STRUCTURE.value
    MAPPING = Stage.MAPPING.value
    TILING = Stage.TILING.value
    MEMORY = Stage.MEMORY.value
    DEBUGGING = "debugging"


CATEGORIES: Mapping[SkillStage, tuple[Category, ...]] = MappingProxyType(
    {
        **{SkillStage(stage.value): categories for stage, categories in stage_categories.items()},
        SkillStage.SEED: stage_categories[Stage.STRUCTURE],
        SkillStage.DEBUGGING: (),
    }
)
"""The kinds of change a skill of each stage may be. A seed plans none, but a structure is what it chooses."""


class SkillError(UsageError):
    """A skill, or a folder of them, that cannot be used; says in which file and line."""


@dataclass(frozen=True)
class Gain:
    """How many times faster the whole program can become, from where the condition barely holds to the
    best case."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high < math.inf:
            raise ValueError(f"a gain is a range from 1 up, not {self.low:g}-{self.high:g}")

    @property
    def expected(self) -> float:
        """The middle, of factors."""
        return math.sqrt(self.low * self.high)

    def __str__(self) -> str:
        return f"{self.low:g}-{self.high:g}"


@dataclass(frozen=True)
class Hardware:
    """GPUs a skill is for, as its author named them: a vendor, an architecture, or one and all later."""

    text: str
    """``nvidia``, ``amd``, ``sm_90``, ``sm_80+``, ``gfx942``."""

    def __post_init__(self) -> None:
        if self.text not in VENDORS and not re.fullmatch(
            r"sm_[1-9][0-9]{1,2}\+?|gfx[0-9]{2,4}[0-9a-f]?", self.text
        ):
            raise ValueError(
                f"{self.text!r} names no hardware: any, nvidia, amd, sm_90, sm_80+ or gfx942 would"
            )

    def names(self, vendor: str, arch: str) -> bool:
        """Whether a GPU of this vendor and architecture is meant, in the table of GPUs or not."""
        if self.text.endswith("+"):
            return 0 < _capability(self.text[:-1]) <= _capability(arch)
        return self.text in (vendor, arch)


def _capability(arch: str) -> int:
    found = re.fullmatch(r"sm_([0-9]+)[a-z]?", arch)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class SkillFile:
    """One skill: everything its folder says."""

    name: str
    description: str
    stages: tuple[SkillStage, ...]
    categories: tuple[Category, ...]
    """Empty for one that only debugs."""
    families: tuple[Family, ...]
    """Operators it is about; empty is any."""
    hardware: tuple[Hardware, ...]
    """GPUs it is for; empty is any."""
    gate: Condition
    veto: Condition | None
    """Where this holds the skill is not offered, whatever the gate says."""
    gain: Gain
    when: str
    how: str
    expected: str
    risks: str
    path: Path
    """Of its ``SKILL.md``."""
    origin: str
    """``built-in``, or the folder it came from."""
    signatures: tuple[str, ...] = ()
    """Refusals that it is for: whole reasons (``build.compile``) or gates (``correctness``)."""
    assets: tuple[Path, ...] = ()
    """Runnable examples."""
    overrides: tuple[Path, ...] = ()
    """Files of the same name that it takes the place of, oldest first."""

    @property
    def body(self) -> str:
        """The four sections as Markdown."""
        texts = (self.when, self.how, self.expected, self.risks)
        return "\n\n".join(f"## {title}\n\n{text}" for title, text in zip(SECTIONS, texts, strict=True))

    @property
    def debugs(self) -> bool:
        return SkillStage.DEBUGGING in self.stages

    def serves(self, stage: Stage | SkillStage | str) -> bool:
        return any(own.value == str(stage) for own in self.stages)

    def runs_on(self, vendor: str, arch: str) -> bool:
        return not self.hardware or any(hardware.names(vendor, arch) for hardware in self.hardware)

    def fits(self, gpu: Gpu) -> bool:
        return self.runs_on(gpu.vendor, gpu.arch)

    def mends(self, reason: str) -> bool:
        """Whether a refusal with this reason (``build.compile``) is one it is for."""
        return any(reason == own or reason.startswith(f"{own}.") for own in self.signatures)


@dataclass(frozen=True)
class Catalogue:
    """Every skill that is known, by name, and the folders they were read from."""

    skills: Mapping[str, SkillFile]
    folders: tuple[Path, ...] = ()
    """Built-in first; a later one overrides an earlier one."""

    def __iter__(self) -> Iterator[SkillFile]:
        """By name."""
        return iter(self.skills[name] for name in sorted(self.skills))

    def __len__(self) -> int:
        return len(self.skills)

    def __contains__(self, name: object) -> bool:
        return name in self.skills

    def __getitem__(self, name: str) -> SkillFile:
        skill = self.skills.get(name)
        if skill is None:
            raise SkillError(f"no skill is called {name!r}", "`egg skills list` shows them all")
        return skill

    def of(self, stage: Stage | SkillStage | str) -> tuple[SkillFile, ...]:
        return tuple(skill for skill in self if skill.serves(stage))
