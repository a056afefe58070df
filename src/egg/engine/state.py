"""What is known of a run: a fold over its events, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from egg.core.conversation import Usage
from egg.core.errors import UsageError
from egg.core.evaluation import Accepted, Compiled, Evaluation, Measured
from egg.core.events import (
    Answered,
    CompiledRecorded,
    ContractMade,
    Evaluated,
    Event,
    Exchanged,
    Inherited,
    Objected,
    Proposed,
    RunClosed,
    RunStarted,
    StageClosed,
    StageOpened,
    StepClosed,
    ToolCalled,
)
from egg.core.policy import Level
from egg.core.recording import Recording
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.step import Contract, Decision, Handoff, Kernel, Origin, Step
from egg.engine.likeness import program_key
from egg.engine.scoring import better, score
from egg.hardware.gpus import Gpu, find

TRANSLATE = "coder.translate"
"""The role that is asked for the translation of a recorded graph."""


@dataclass(frozen=True)
class Ledger:
    """What a run has used so far. Time is what answers and evaluations took, so a pause costs nothing."""

    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    calls: int = 0
    unpriced_calls: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    tools: int = 0
    """Calls of tools by a model."""


@dataclass(frozen=True)
class RunState:
    """Everything a run has learned and decided. ``base`` is built upon, ``best`` is the fastest."""

    started: RunStarted
    ledger: Ledger = field(default_factory=Ledger)
    stage: Stage | None = None
    """The one that is open."""
    steps: tuple[Step, ...] = ()
    handoffs: tuple[Handoff, ...] = ()
    contract: Contract | None = None
    base: str | None = None
    best: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Every kernel file that was proposed, by hash."""
    origins: Mapping[str, int] = field(default_factory=dict)
    """The step that first proposed a program, by its normalised form."""
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    """By job."""
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    """Every kernel that stands accepted, by hash."""
    closed: RunClosed | None = None
    inherited: Inherited | None = None
    """The built-in team's own run before this one, where there was one."""
    compiled: Recording | None = None
    """What torch.compile generated, where that was recorded."""
    translated: bool = False
    """Whether the team was asked to translate it."""

    @property
    def base_kernel(self) -> Kernel | None:
        return self.kernels.get(self.base) if self.base else None

    @property
    def best_kernel(self) -> Kernel | None:
        return self.kernels.get(self.best) if self.best else None

    @property
    def gpu(self) -> Gpu | None:
        return target_gpu(self.started)

    def steps_in(self, stage: Stage) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.stage == stage)


def target_gpu(started: RunStarted) -> Gpu | None:
    """The GPU a run writes for, where the table knows it."""
    return find(started.facts.gpu.name)


def fold(events: Iterable[Event]) -> RunState:
    """The state after ``events``, the first of which starts the run."""
    remaining = iter(events)
    first = next(remaining, None)
    if not isinstance(first, RunStarted):
        raise ValueError("a log begins with the start of its run")
    state = RunState(first)
    for event in remaining:
        state = apply(state, event)
    return state


def apply(state: RunState, event: Event) -> RunState:
    """The state after one more event. Events that change nothing but the record are let through."""
    match event:
        case Exchanged():
            return replace(state, ledger=_after_exchange(state.ledger, event))
        case ToolCalled():
            return replace(state, ledger=replace(state.ledger, tools=state.ledger.tools + 1))
        case Answered(role=role, seconds=seconds):
            ledger = replace(state.ledger, seconds=state.ledger.seconds + seconds)
            return replace(state, ledger=ledger, translated=state.translated or role == TRANSLATE)
        case Proposed(candidate=candidate, source=source, step=step):
            key = candidate if event.origin is Origin.SWEEP else program_key(source)
            origins = {key: step, **state.origins}
            return replace(state, sources={**state.sources, candidate: source}, origins=origins)
        case Evaluated():
            return _after_evaluation(state, event)
        case Objected(candidate=candidate, judged=True):
            kernels = {name: kernel for name, kernel in state.kernels.items() if name != candidate}
            return replace(state, kernels=kernels, best=_best(state, kernels, candidate, Level.QUICK))
        case CompiledRecorded(recording=recording):
            spent = state.ledger.seconds + recording.seconds
            return replace(state, compiled=recording, ledger=replace(state.ledger, seconds=spent))
        case Inherited(source=source):
            return replace(state, started=replace(state.started, start=source), inherited=event)
        case StageOpened(stage=stage):
            return replace(state, stage=stage)
        case StageClosed(handoff=handoff):
            return replace(state, stage=None, handoffs=(*state.handoffs, handoff))
        case ContractMade(contract=contract):
            return replace(state, contract=contract)
        case StepClosed(step=step):
            base = step.candidate if step.decision is Decision.PROMOTED else state.base
            return replace(state, steps=(*state.steps, step), base=base)
        case RunClosed():
            return replace(state, closed=event)
        case _:
            return state


def _after_exchange(ledger: Ledger, event: Exchanged) -> Ledger:
    completion = event.completion
    return replace(
        ledger,
        usage=ledger.usage + completion.usage,
        cost=ledger.cost + (completion.cost or 0.0),
        calls=ledger.calls + 1,
        unpriced_calls=ledger.unpriced_calls + (completion.cost is None),
    )


def _after_evaluation(state: RunState, event: Evaluated) -> RunState:
    """An accepted kernel joins the others and may be the best; one that full care refuses leaves them.

    Neither a side-by-side timing nor the compiler's figures of a file are a verdict on it.
    """
    evaluation = event.evaluation
    name = evaluation.candidate_hash
    ledger = replace(
        state.ledger,
        evaluations=state.ledger.evaluations + 1,
        seconds=state.ledger.seconds + evaluation.seconds,
    )
    if evaluation.contenders or (evaluation.accepted and not evaluation.checked):
        return replace(state, ledger=ledger, evaluations={**state.evaluations, event.job: evaluation})
    kernels = {key: kernel for key, kernel in state.kernels.items() if key != name}
    found = score(evaluation, state.gpu)
    if found is not None:
        kernels[name] = Kernel(Candidate(state.sources[name], name), evaluation, found)
    return replace(
        state,
        ledger=ledger,
        evaluations={**state.evaluations, event.job: evaluation},
        kernels=kernels,
        best=_best(state, kernels, name, evaluation.policy.level),
    )


def check_comparable(state: RunState, evaluation: Evaluation) -> None:
    """Refuse a time that no other of this run can be compared with, before it is part of the log."""
    known = next((way for kernel in state.kernels.values() if (way := _timed_by(kernel.evaluation))), "")
    now = _timed_by(evaluation)
    if known and now and known != now:
        raise UsageError(
            f"this kernel was {now}, the others of this run were {known}: they cannot be compared",
            "judge every kernel of a run on the same kind of machine; nothing was recorded",
        )


def _timed_by(evaluation: Evaluation) -> str:
    """How a kernel's time is known; empty for one that was refused."""
    if evaluation.accepted and evaluation.contenders:
        return f"measured on {evaluation.machine.gpu}"
    match evaluation.verdict:
        case Accepted(performance=Measured(gpu=gpu)):
            return f"measured on {gpu}"
        case Accepted(performance=Compiled(target=target)):
            return f"predicted for {target}"
    return ""


def _best(state: RunState, kernels: Mapping[str, Kernel], latest: str, level: Level) -> str | None:
    """The fastest of those that stand. A regrade is a better look at one kernel, not a reason to change."""
    if state.best in kernels and (level is not Level.QUICK or latest not in kernels):
        return state.best
    best = state.best if state.best in kernels else None
    for name, kernel in kernels.items():
        if best is None or better(kernel.score, kernels[best].score):
            best = name
    return best
