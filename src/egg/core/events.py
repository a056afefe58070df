"""The events a run's log is made of. Whatever is known of a run is a fold over them.

Two kinds stand side by side. *Effects* are what the world answered (:class:`Exchanged`, :class:`ToolCalled`,
:class:`Answered`, :class:`Advised`, :class:`Evaluated`, :class:`CompiledRecorded`); they are read back
instead of being asked again. *Decisions* are what the engine concluded from them; a replay must come to the
same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from egg.core.conversation import Completion, Request, ToolCall
from egg.core.evaluation import Evaluation
from egg.core.exemplar import Exemplar
from egg.core.facts import Facts
from egg.core.plan import Answer, Weighed
from egg.core.recording import Recording
from egg.core.roles import Skill
from egg.core.settings import Settings
from egg.core.source import Task
from egg.core.space import Sweep
from egg.core.stage import Stage
from egg.core.step import Contract, Handoff, Origin, Step

SCHEMA = "egg.run/2"
READABLE = ("egg.run/1", SCHEMA)
"""Version 1 had other names for side-by-side timing: ``heats``, ``rivals``, jobs called ``heat-HASH``.
A point of a sweep had its outcome under ``told``."""
SIDE_BY_SIDE = "side-by-side-"
"""How the name of a job begins that times files side by side."""


@dataclass(frozen=True)
class RunStarted:
    kind: ClassVar[str] = "run.started"
    schema: str
    run: str
    version: str
    """Of this package."""
    task: Task
    settings: Settings
    facts: Facts
    standings: Mapping[str, Any] = field(default_factory=dict)
    """The standing of each skill in memory at the start, by stage; lessons learned since do not change it."""
    start: str | None = None
    """The text of a kernel file to begin with; ``None`` where the team writes the first one."""
    exemplars: tuple[Exemplar, ...] = ()
    """Kernels of earlier runs for like programs, as they were known at the start; prompts show them."""


@dataclass(frozen=True)
class Inherited:
    """What the built-in team's own run of the same task ended with, before this team was asked anything.

    It stands behind the start of a run whose settings say ``first: expert``.
    """

    kind: ClassVar[str] = "run.inherited"
    run: str
    """Its name; its log is in the folder ``expert`` of this run."""
    source: str | None
    """The best kernel file, tuned: the run begins with it. ``None`` where none was accepted."""
    handoffs: tuple[Handoff, ...]
    """What each of its stages tried, with predictions and outcomes."""
    ended: str
    """Why it ended, and what came of it."""
    weighed: tuple[Weighed, ...] = ()
    """Other structures it knows for that kernel, the largest predicted gain first."""


@dataclass(frozen=True)
class StageOpened:
    kind: ClassVar[str] = "stage.opened"
    stage: Stage
    base: str | None


@dataclass(frozen=True)
class StageSkipped:
    kind: ClassVar[str] = "stage.skipped"
    stage: Stage
    reason: str


@dataclass(frozen=True)
class StageClosed:
    kind: ClassVar[str] = "stage.closed"
    handoff: Handoff


@dataclass(frozen=True)
class Advised:
    """The skills that were offered in a step, in full: whatever becomes of a catalogue, and of what memory
    says of it, the run was offered these, and its plans are held to them. No offer leaves no event."""

    kind: ClassVar[str] = "skills.offered"
    step: int
    failure: str
    """The refusal that they are to repair, as the judge names it; empty for those that a plan may follow."""
    skills: tuple[Skill, ...]


@dataclass(frozen=True)
class Exchanged:
    """One call of a model. Several may lead to one answer."""

    kind: ClassVar[str] = "model.exchanged"
    request: Request
    completion: Completion


@dataclass(frozen=True)
class ToolCalled:
    """A tool that a model called on the way to an answer, and what it returned."""

    kind: ClassVar[str] = "tool.called"
    purpose: str
    """Of the question, as in its requests."""
    call: ToolCall
    result: str
    """The text that the model reads."""
    seconds: float


@dataclass(frozen=True)
class Answered:
    """A role's answer, as a value. ``role`` is ``designer``, ``tuner``, ``coder.seed``, ``debugger``..."""

    kind: ClassVar[str] = "role.answered"
    role: str
    step: int
    answer: Answer
    seconds: float


@dataclass(frozen=True)
class SentBack:
    """An answer the engine did not take: a plan that failed before, a skill that was not offered."""

    kind: ClassVar[str] = "answer.sent_back"
    role: str
    step: int
    objection: str


@dataclass(frozen=True)
class Proposed:
    """A kernel file, before anything is known of it. The log holds its text."""

    kind: ClassVar[str] = "kernel.proposed"
    step: int
    origin: Origin
    candidate: str
    source: str


@dataclass(frozen=True)
class Objected:
    """A kernel file that the engine itself refused, before the judge saw it or by what the judge saw."""

    kind: ClassVar[str] = "kernel.objected"
    step: int
    candidate: str
    objection: str
    judged: bool = False
    """Whether the judge had accepted it: then it stands no longer."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation by the judge; ``job`` names the question, so that results may come back in any order."""

    kind: ClassVar[str] = "kernel.evaluated"
    job: str
    evaluation: Evaluation


@dataclass(frozen=True)
class CompiledRecorded:
    """What torch.compile generated for the program, or why that cannot be used; at most once in a run."""

    kind: ClassVar[str] = "compiled.recorded"
    recording: Recording


@dataclass(frozen=True)
class Swept:
    kind: ClassVar[str] = "space.swept"
    step: int
    sweep: Sweep


@dataclass(frozen=True)
class StepClosed:
    kind: ClassVar[str] = "step.closed"
    step: Step


@dataclass(frozen=True)
class ContractMade:
    """Stage 1 is over: this is the structure from here on."""

    kind: ClassVar[str] = "contract.made"
    contract: Contract


@dataclass(frozen=True)
class RunClosed:
    """The end: what is returned and why. ``candidate`` is ``None`` when that is the reference."""

    kind: ClassVar[str] = "run.closed"
    candidate: str | None
    verdict: str
    """``faster``, ``unmeasured`` (accepted without a GPU), or ``reference``."""
    reason: str
    stopped: str
    """Why the search ended."""


Event = (
    RunStarted
    | Inherited
    | StageOpened
    | StageSkipped
    | StageClosed
    | Advised
    | Exchanged
    | ToolCalled
    | Answered
    | SentBack
    | Proposed
    | Objected
    | Evaluated
    | CompiledRecorded
    | Swept
    | StepClosed
    | ContractMade
    | RunClosed
)
