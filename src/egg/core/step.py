"""The nouns of a run: a step with its prediction and outcome, what a stage remembers and what it hands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from egg.core.evaluation import Evaluation, Interval, Refusal
from egg.core.plan import Diagnosis, Plan
from egg.core.source import Candidate
from egg.core.space import Sweep
from egg.core.stage import Stage


@dataclass(frozen=True)
class Score:
    """How fast an accepted kernel is: measured against eager PyTorch in one session, or predicted.

    Measured times of different sessions are compared by their speedup over eager, which takes
    out what differs between sessions; predictions by the predicted time.
    """

    measured: bool
    milliseconds: Interval
    speedup: Interval | None
    """Over eager; ``None`` for a prediction."""
    noise: float
    """Relative: a gain inside it is not a gain."""
    floor_milliseconds: float | None
    faster: bool | None
    """Than eager, beyond the noise; ``None`` for a prediction."""

    @property
    def headroom(self) -> float | None:
        """How many times the roofline floor this takes; ``None`` where there is no floor."""
        return self.milliseconds.median / self.floor_milliseconds if self.floor_milliseconds else None


@dataclass(frozen=True)
class Gain:
    """One score against another: their ratio, and whether it is more than noise."""

    ratio: float
    """Larger than 1 is faster."""
    beyond_noise: bool
    measured: bool


@dataclass(frozen=True)
class Kernel:
    """An accepted kernel: the file, its evaluation, and how fast it is."""

    candidate: Candidate
    evaluation: Evaluation
    score: Score


class Origin(StrEnum):
    """Why a kernel file was written."""

    START = "start"
    """It was not: the run was given it to begin with."""
    SEED = "seed"
    OPTIMIZE = "optimize"
    REPAIR = "repair"
    SWEEP = "sweep"
    TRANSLATION = "translation"
    """Of what torch.compile generated."""


@dataclass(frozen=True)
class Attempt:
    """One kernel file on its way to the judge. ``refusal`` is the judge's, ``objection`` the engine's own."""

    candidate: str
    origin: Origin
    diagnosis: Diagnosis | None = None
    """What the repair followed."""
    refusal: Refusal | None = None
    objection: str = ""
    """Why it was not judged at all: it repeats an earlier file, or breaks the structure contract."""

    @property
    def failed(self) -> bool:
        return self.refusal is not None or bool(self.objection)

    @property
    def signature(self) -> str:
        """The failure in one line, stable enough to recognise it again; empty when there was none."""
        if self.refusal is not None:
            return f"{self.refusal.gate.value}: {self.refusal.reason}"
        return self.objection


class Decision(StrEnum):
    """How a step ended."""

    PROMOTED = "promoted"
    NOT_BETTER = "not better"
    FAILED = "failed"
    UNUSABLE = "unusable"
    REPEATED = "repeated"
    SENT_BACK = "sent back"
    PASSED = "passed"


@dataclass(frozen=True)
class Step:
    """One change: the plan with its prediction, the files written for it, and what came of it."""

    number: int
    stage: Stage
    base: str | None
    """Hash of the kernel it was built on."""
    plan: Plan | None
    attempts: tuple[Attempt, ...]
    """The first follows the plan; the others are its repair chain."""
    decision: Decision
    reason: str
    candidate: str | None = None
    """Hash of the accepted file, after the sweep where there was one."""
    gain: Gain | None = None
    """Over the base."""
    sweep: Sweep | None = None


@dataclass(frozen=True)
class KernelRole:
    """One kernel of a structure: what it is called, how often it is launched, and what it does."""

    name: str
    launches: int
    building_blocks: tuple[str, ...]
    """The operations that make its algorithm: ``dot``, ``reduce``, ``scan``, ``atomic``, ``sort``."""
    purpose: str
    """The first line of its docstring."""


@dataclass(frozen=True)
class Contract:
    """The structure that stage 1 decided and stage 2 may not change."""

    kernels: tuple[KernelRole, ...]
    library_ops: Mapping[str, int]


@dataclass(frozen=True)
class Handoff:
    """What a stage passes on to the next."""

    stage: Stage
    """The one that ended."""
    reason: str
    """Why it ended."""
    contract: Contract | None
    best: str | None
    """Hash of the best kernel so far."""
    best_score: Score | None
    tried: tuple[Step, ...]
    """Everything that was tried in it."""
    open_bottleneck: str
    """What the last plan or the best kernel's headroom says is left; empty where unknown."""


@dataclass(frozen=True)
class Trajectory:
    """What happened so far within one stage."""

    stage: Stage
    steps: tuple[Step, ...] = ()
    chain: tuple[Attempt, ...] = ()
    """The open repair chain: this step's attempts, apart from the history."""

    @property
    def failure_signatures(self) -> tuple[str, ...]:
        """Each way to fail that was seen, once, oldest first: where, and what was tried.

        A step whose file was accepted after a repair did not fail: its plan may be followed again.
        """
        tried = [(a, step.plan) for step in self.steps if _failed(step) for a in step.attempts]
        tried += [(a, None) for a in self.chain]
        return tuple(dict.fromkeys(_failure(a, plan) for a, plan in tried if a.failed))


def _failed(step: Step) -> bool:
    """Whether its last file failed: a file that was repaired is no failure."""
    return bool(step.attempts) and step.attempts[-1].failed


def _failure(attempt: Attempt, plan: Plan | None) -> str:
    """A failure in one line; repairs of one change that fail alike say the same."""
    return f"{attempt.signature} (when trying: {plan.change})" if plan is not None else attempt.signature
