"""What a run was asked to do: everything that decides its course besides the task itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from egg.core.policy import LibraryCalls, Precision
from egg.core.stage import Stage

SKILL_SHARE = 0.5
"""Room for the bodies of skills, beside a budget's ``prompt_tokens`` and relative to it."""


@dataclass(frozen=True)
class Budget:
    """How much is tried, by name."""

    formerly: ClassVar[Mapping[str, str]] = {"heats": "side_by_side"}
    name: str
    steps: Mapping[Stage, int]
    """At most so many steps in a stage; a seed is a step too."""
    patience: int
    """A stage ends after so many steps in a row without a gain."""
    repairs: int
    """Repairs of one failed file before going back to the base."""
    sweep_points: int
    """Points of a tunable space that one sweep may try."""
    headroom: float
    """A kernel within this factor of the roofline floor is left as it is."""
    prompt_tokens: int
    """Room for what is remembered in one prompt."""
    reply_tokens: int
    side_by_side: bool = False
    """Whether files of the tuning stages are timed side by side with the base, and judged only if faster.
    Runs that were begun without stay without: a log is read as it was written."""
    reply_per_base: float = 0.0
    """Tokens that a coder's reply may have for each of the file it changes, where that is more than
    ``reply_tokens``; 0 where the limit does not grow with the file."""
    tool_calls: int = 0
    """Tools that a model may call before it answers one question of the coder or the debugger."""


@dataclass(frozen=True)
class Caps:
    """Limits that end a run wherever it is; ``None`` is no limit."""

    cost: float | None = None
    """US dollars."""
    tokens: int | None = None
    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name in ("cost", "tokens", "steps", "minutes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"a cap on {name} is a positive number, not {value}")


@dataclass(frozen=True)
class ModelChoice:
    """Which model answers, and where. The key is never here: only the name of the variable that holds it."""

    provider: str
    """``openai`` (or anything that speaks its protocol) or ``anthropic``."""
    name: str
    base_url: str | None = None
    key_variable: str | None = None
    temperature: float | None = None


ROLES = ("designer", "tuner", "coder", "debugger")
"""What a team's members are called where each has a model or an effort of its own."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True)
class Settings:
    """The terms of a run, fixed when it starts."""

    team: str
    budget: Budget
    precision: Precision = Precision.MATCH
    library_calls: LibraryCalls = LibraryCalls.ALLOW
    device: str = "auto"
    """Where kernels are judged: ``auto``, ``cpu``, ``cuda:0``, or ``offline`` for another machine."""
    target: str | None = None
    """The GPU that is written for; on a machine with one, that one."""
    caps: Caps = field(default_factory=Caps)
    model: ModelChoice | None = None
    """Answers for every role that ``models`` does not name."""
    models: Mapping[str, ModelChoice] = field(default_factory=dict)
    """By role."""
    efforts: Mapping[str, str] = field(default_factory=dict)
    """How much each role reasons, of :data:`EFFORTS`; a role that is not here leaves it to the endpoint."""
    width: int = 1
    """Drafts of the same seed or structure that are judged together; the fastest that is right goes on."""
    seed: int = 0
    skills: tuple[str, ...] | None = None
    """The user's folders of skills beside the built-in ones, as paths; ``None`` where none are offered."""
    first: str = ""
    """``expert``: the built-in team has a run of its own first, and the team goes on from its best kernel."""
    lessons: str | None = None
    """The store that remembers what earlier runs taught and learns from this one; ``None`` for neither."""
    without: tuple[str, ...] = ()
    """Parts that are left out, for an experiment: names of :data:`egg.core.parts.PARTS`."""
    compiled: str = ""
    """What torch.compile's code is recorded for, of :mod:`egg.core.recording`; empty: it is not recorded.
    Logs of versions before recordings are read as runs that made none."""

    @property
    def all_models(self) -> tuple[ModelChoice, ...]:
        """Every model that may be asked, each once."""
        every = (*([self.model] if self.model is not None else []), *self.models.values())
        return tuple(dict.fromkeys(every))
