"""A team and a judge that do what a script says: the whole engine without a model, a GPU or a wait.

Answers are looked up by a *cue* (who is asked, in which stage, in which step of it, at which
repair), not by counting calls: a resumed run reads earlier answers from its log and never asks
for them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from egg.core.errors import UsageError
from egg.core.evaluation import (
    Accepted,
    Baseline,
    Compiled,
    Contender,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Interval,
    Machine,
    Measured,
    Provenance,
    Refusal,
    Rejected,
)
from egg.core.plan import Answer, Diagnosis, Draft, Pass, Plan, Unusable
from egg.core.policy import Level
from egg.core.recording import Recording
from egg.core.roles import Brief, EveryRole, Failure
from egg.core.source import Candidate
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question, RecordRequest

_A = TypeVar("_A")


@dataclass(frozen=True)
class Cue:
    """A question's place in a run. Steps count from 1 within their stage, repairs from 1 within a step."""

    role: str
    stage: str
    step: int
    repair: int = 0
    again: bool = False
    """Whether an answer was sent back."""
    draft: int = 1
    """Of several for the same question."""

    def __str__(self) -> str:
        repair = f".{self.repair}" if self.repair else ""
        draft = f" draft {self.draft}" if self.draft > 1 else ""
        return f"{self.role} {self.stage} {self.step}{repair}{' again' if self.again else ''}{draft}"


class ScriptedTeam(EveryRole):
    """Every role at once. ``script`` maps cues as text (``designer structure 1``) to answers."""

    def __init__(self, script: Mapping[str, Answer]) -> None:
        self._script = script
        self.asked: list[str] = []

    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        return self._say(_cue("designer", brief), Plan, Pass, Unusable)

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        return self._say(_cue("tuner", brief), Plan, Pass, Unusable)

    def seed(self, brief: Brief) -> Draft | Unusable:
        return self._say(_cue("coder.seed", brief), Draft, Unusable)

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        return self._say(_cue("coder.optimize", brief), Draft, Unusable)

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        return self._say(_cue("coder.repair", brief), Draft, Unusable)

    def translate(self, brief: Brief) -> Draft | Unusable:
        return self._say(_cue("coder.translate", brief), Draft, Unusable)

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        return self._say(_cue("debugger", brief), Diagnosis, Unusable)

    def _say(self, cue: Cue, *kinds: type[_A]) -> _A:
        self.asked.append(str(cue))
        answer = self._script.get(str(cue))
        if not isinstance(answer, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"the script has no {wanted} for {str(cue)!r}", "add it to the script")
        return answer


def _cue(role: str, brief: Brief) -> Cue:
    trajectory = brief.trajectory
    return Cue(
        role,
        trajectory.stage.value,
        len(trajectory.steps) + 1,
        len(trajectory.chain),
        bool(brief.objection),
        len(brief.drafts) + 1,
    )


@dataclass(frozen=True)
class Act:
    """What the scripted judge makes of a file: a time in milliseconds, or a refusal; and who is launched."""

    milliseconds: float = 1.0
    refusal: Refusal | None = None
    kernels: Mapping[str, int] | None = None


class ScriptedJudge:
    """Judges by a function of the file. The reference takes one millisecond; the noise floor is 1%."""

    EAGER, NOISE, GPU = 1.0, 0.01, "NVIDIA H200"

    def __init__(
        self,
        act: Callable[[Candidate], Act],
        floor: float | None = None,
        *,
        compiled: float | None = None,
        recording: Recording | None = None,
    ) -> None:
        """``compiled``: milliseconds of torch.compile, a second baseline. ``recording``: what is recorded of
        it; without one nothing can be."""
        self._act = act
        self._floor = floor
        self._compiled = compiled
        self._recording = recording
        self.judged: list[str] = []
        self.recorded: list[RecordRequest] = []

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        for job in jobs:
            self.judged.append(job.id)
            yield job.id, self._evaluation(job)

    def record(self, request: RecordRequest) -> Recording | None:
        self.recorded.append(request)
        return self._recording

    def close(self) -> None:
        pass

    def _evaluation(self, job: Job) -> Evaluation:
        asked = job.question
        act = self._act(asked.candidate)
        return Evaluation(
            **asked.identity,
            machine=Machine("cuda", self.GPU, "3.12", "2.11", "3.6"),
            verdict=Rejected(act.refusal) if act.refusal is not None else self._accepted(act, asked),
            gates=_course(asked, act),
            seconds=1.0,
            contenders=tuple(self._contender(act, file) for file in asked.contenders),
        )

    def _contender(self, own: Act, file: Candidate) -> Contender:
        """Side-by-side timing does not check: only a file that cannot be built or run has no time."""
        act = self._act(file)
        if act.refusal is not None and act.refusal.gate is Gate.BUILD:
            return Contender(file.hash, None, None, act.refusal.evidence)
        return Contender(file.hash, _narrow(act.milliseconds), _narrow(own.milliseconds / act.milliseconds))

    def _accepted(self, act: Act, asked: Question) -> Accepted:
        provenance = Provenance(act.kernels or {"kernel": 1}, {}, 1.0)
        if asked.contenders:
            return Accepted(
                Correctness(0, 0, 0, 0, 0, True), provenance, Compiled(self.GPU, (), None, "full")
            )
        time, speedup = act.milliseconds, self.EAGER / act.milliseconds
        performance = Measured(
            gpu=self.GPU,
            milliseconds=_narrow(time),
            baselines=(Baseline("eager", _narrow(self.EAGER), _narrow(speedup)), *self._second(time)),
            noise_floor=self.NOISE,
            wall_milliseconds=time,
            wall_speedup=speedup,
            floor_milliseconds=self._floor,
            faster=speedup > 1 + self.NOISE,
        )
        return Accepted(Correctness(4, 0.1, 0.1, 1e-7, 1e-7, True), provenance, performance)

    def _second(self, own: float) -> tuple[Baseline, ...]:
        compiled = self._compiled
        if compiled is None:
            return ()
        return (Baseline("compile", _narrow(compiled), _narrow(compiled / own)),)


def _course(asked: Question, act: Act) -> tuple[GateRecord, ...]:
    """The gates that a machine with a GPU would have led the file through."""
    met = [gate for gate in Gate if gate not in (Gate.PLAN, Gate.SANITIZER, *asked.skip)]
    if asked.policy.level is Level.QUICK:
        met = [gate for gate in met if gate not in (Gate.MEMORY, Gate.REGRADE, Gate.INTERPRETER)]
    if act.refusal is not None:
        met = [gate for gate in met if gate is act.refusal.gate]
    return tuple(GateRecord(gate, act.refusal is None, 0.1) for gate in met)


def _narrow(value: float) -> Interval:
    return Interval(value, value * 0.999, value * 1.001)
