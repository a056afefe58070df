"""Level settings: what each level of an evaluation (quick, full, audit) spends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from egg.core.policy import Level
from egg.evaluator.task.unusual_kinds import UNUSUAL


class Profile(StrEnum):
    """Whose GPU time PyTorch's profiler splits into own kernels and libraries: it takes seconds to start."""

    NONE = "none"
    SHARED = "shared"
    """Of candidates that call libraries."""
    ALL = "all"

    @classmethod
    def _missing_(cls, value: object) -> Profile | None:
        """As older versions wrote it into job files."""
        return {"nobody's": cls.NONE, "everybody's": cls.ALL}.get(str(value))


class Probes(StrEnum):
    """Which calls beside the task's own a candidate is tried at."""

    NONE = "none"
    FEW = "few"
    """Several things changed at once; each alone only where that fails."""
    ALL = "all"


@dataclass(frozen=True)
class LevelSettings:
    """How many questions, how long, and which opponents."""

    formerly: ClassVar[Mapping[str, str]] = {"yields": "retimed"}

    seeds: int
    distributions: tuple[str, ...]
    reweighed: int
    """How many cases run under re-randomised weights of their own."""
    opponents: tuple[str, ...]
    rounds: int
    round_milliseconds: float
    """Device time the reference gets per round; every contestant gets as many calls."""
    unusual: tuple[str, ...] = UNUSUAL
    """Legal values that no distribution draws."""
    constants: int = 3
    """Questions with the constants of the candidate's own text among the inputs."""
    input_sets: int = 3
    calls: int = 160
    """In a row, on values of their own, with outputs that are held; fewer where they take long."""
    calls_seconds: float = 12.0
    own_seconds: float = 12.0
    """For calls that repeat the one at the task's own size, without a GPU; a quarter of it at each size
    between. What does not fit is listed in the verdict."""
    domain: Probes = Probes.ALL
    """How many calls beside the task's own are tried."""
    remembered: bool = False
    """Whether loads of what earlier calls left are looked for where few calls are tried, too."""
    audit_task: bool = True
    """Whether null candidates are held against the task itself."""
    profile: Profile = Profile.ALL
    retimed: bool = False
    """Whether a timing session in which times lay far apart is held again."""
    fence: bool = True
    """Whether it runs once more with unmapped memory around every tensor, on a GPU."""
    interpreted: bool = True
    """Whether a kernel that a GPU accepts is judged in the interpreter as well."""
    sanitize: bool = False
    regrades: int = 1
    build_seconds: float = 120.0
    call_seconds: float = 60.0


ALL = ("normal", "uniform", "tiny", "large", "heavy", "sparse")

_FULL = LevelSettings(
    seeds=5,
    distributions=ALL,
    reweighed=2,
    opponents=("eager", "compile", "reduce-overhead"),
    rounds=24,
    round_milliseconds=20.0,
)
LEVELS = {
    Level.QUICK: LevelSettings(
        seeds=2,
        distributions=("normal", "large"),
        reweighed=1,
        opponents=("eager", "compile"),
        rounds=8,
        round_milliseconds=12.0,
        unusual=(),
        constants=1,
        input_sets=2,
        calls=8,
        calls_seconds=0.5,
        domain=Probes.FEW,
        audit_task=False,
        profile=Profile.NONE,
        retimed=True,
        fence=False,
        interpreted=False,
        regrades=0,
    ),
    Level.FULL: _FULL,
    Level.AUDIT: replace(
        _FULL, seeds=8, reweighed=4, rounds=40, round_milliseconds=25.0, sanitize=True, regrades=2
    ),
}
