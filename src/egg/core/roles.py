"""The roles of a team, as protocols. The engine knows nothing else of a team."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from egg.core.bottleneck import Diagnosed
from egg.core.evaluation import Machine, Refusal
from egg.core.exemplar import Exemplar
from egg.core.facts import Facts
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Unusable, Weighed
from egg.core.policy import Policy
from egg.core.recording import Recording
from egg.core.source import Candidate, Task
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Attempt, Handoff, Kernel, Trajectory


@dataclass(frozen=True)
class Skill:
    """A piece of expert knowledge that was offered for a step, and why."""

    name: str
    description: str
    body: str
    reason: str
    pattern: str = ""
    """A runnable example of it, as a kernel file; empty where it has none."""


@dataclass(frozen=True)
class Assignment:
    """What a stage is for and what it may touch: the stage's row of the table."""

    stage: Stage
    objective: str
    may_change: str
    may_not_change: str
    metrics: tuple[Metric, ...]
    categories: tuple[Category, ...]


@dataclass(frozen=True)
class Brief:
    """Everything a role is given."""

    task: Task
    policy: Policy
    facts: Facts
    assignment: Assignment
    trajectory: Trajectory
    base: Kernel | None = None
    """What to build on; ``None`` before the first accepted kernel."""
    best: Kernel | None = None
    handoffs: tuple[Handoff, ...] = ()
    """One per stage that ended, oldest first."""
    skills: tuple[Skill, ...] = ()
    objection: str = ""
    """Why the answer just given was sent back; empty the first time."""
    diagnosis: Diagnosed | None = None
    """What holds the base back; ``None`` where too little is known of it."""
    inherited: tuple[Handoff, ...] = ()
    """What the built-in team's own run before this one tried, stage by stage."""
    weighed: tuple[Weighed, ...] = ()
    """Other structures that the built-in team knows for the kernel it left, by predicted gain."""
    drafts: tuple[str, ...] = ()
    """Files that were written for this very question: several are judged together, and one goes on."""
    failed: Candidate | None = None
    """The file of this step that was refused and is to be repaired."""
    machine: Machine | None = None
    """Where the latest kernel of the run was judged; ``None`` before the first."""
    exemplars: tuple[Exemplar, ...] = ()
    """Accepted kernels of earlier runs for like programs, the likest first."""
    side_by_side: bool = False
    """Whether points of a sweep are timed side by side, and so are cheap where a GPU measures."""
    compiled: Recording | None = None
    """What torch.compile generated for the program; ``None`` where it was not recorded."""
    own: Kernel | None = None
    """The team's own kernel that a translation of torch.compile's code took the place of as the base."""
    own_diagnosis: Diagnosed | None = None
    """What holds that kernel back."""


@dataclass(frozen=True)
class Failure:
    """A kernel file that failed, for its repair; ``chain`` is what this step tried before."""

    candidate: Candidate
    refusal: Refusal | None
    objection: str
    chain: tuple[Attempt, ...]
    plan: Plan | None = None
    """What the file was written for; a seed follows no plan."""


class Designer(Protocol):
    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        """Choose one change to the algorithmic structure, or say that nothing is worth it."""
        ...


class Tuner(Protocol):
    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        """Choose one adjustment to the hardware within the stage, or say that nothing is worth it."""
        ...


class Coder(Protocol):
    def seed(self, brief: Brief) -> Draft | Unusable:
        """Write a first kernel file for the task."""
        ...

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        """Change the base as the plan says, and nothing else."""
        ...

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        """Repair a kernel file that failed."""
        ...


@runtime_checkable
class Translator(Protocol):
    """A coder that writes what torch.compile generated as a kernel file."""

    def translate(self, brief: Brief) -> Draft | Unusable:
        """The recorded graph of the brief as a kernel file, changed in nothing but its form."""
        ...


class Debugger(Protocol):
    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        """Name the root cause of a failure and what to change."""
        ...


class Team(Protocol):
    """One implementation of every role."""

    @property
    def designer(self) -> Designer: ...
    @property
    def tuner(self) -> Tuner: ...
    @property
    def coder(self) -> Coder: ...
    @property
    def debugger(self) -> Debugger: ...


class EveryRole:
    """A team that is one object: it fills all four roles itself."""

    @property
    def designer(self) -> Self:
        return self

    @property
    def tuner(self) -> Self:
        return self

    @property
    def coder(self) -> Self:
        return self

    @property
    def debugger(self) -> Self:
        return self


class Advisor(Protocol):
    """Knows which expert skills fit a step."""

    def advise(self, brief: Brief) -> tuple[Skill, ...]: ...
