"""The judge: lead a candidate through the gates; the first that fails ends it."""

from __future__ import annotations

import gc
import platform
import re
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
import triton

from egg.core.errors import EggError, MachineError, TaskError
from egg.core.evaluation import (
    Accepted,
    Contender,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Machine,
    PlanAnswer,
    Provenance,
    Refusal,
    RefusalFacts,
    Rejected,
    Waited,
)
from egg.core.recording import Recording
from egg.core.source import Candidate
from egg.evaluator import static
from egg.evaluator.gates.hints import hint_for
from egg.evaluator.judge import plans
from egg.evaluator.judge.backends import ForkServers, backend_on
from egg.evaluator.judge.intact import Snapshot
from egg.evaluator.judge.question import PlanRequest, Question, RecordRequest
from egg.evaluator.process.handle import Fault
from egg.evaluator.process.machine import driver_version
from egg.evaluator.process.sharing import OnWait, Wait, place_on
from egg.evaluator.task.audit import audit
from egg.evaluator.task.program import sharing_gpu
from egg.evaluator.tensors import memory
from egg.evaluator.transport.protocol import Canary
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

SAYS_ITS_SIZES = (Gate.DOMAIN,)
"""Gates that run other calls than the task's and name them."""
EVERYTHING = 1 << 62
"""Bytes: more than any GPU has."""
NOT_ALL = "memory ran out while idle judges held some of this GPU's: judge it on one seat to be sure"


@dataclass(frozen=True)
class _Begun:
    """When an evaluation began, on the judge's clock, and what had been waited until then."""

    at: float
    waits: Mapping[Wait, float]


class Judge:
    """Judges candidates one after another on one device. Lives in the oracle process.

    Other judges may use the same GPU. The device is taken together with them, and alone for
    the steps that measure; how long that had to be waited for counts in no record.
    """

    def __init__(
        self,
        device: torch.device,
        on_gate: Callable[[Gate], None] = lambda _: None,
        on_wait: OnWait = lambda _: None,
        forkservers: ForkServers | None = None,
    ) -> None:
        self._sharing = place_on(device, on_wait)
        try:
            self._backend = backend_on(device, self._sharing, forkservers)
        except BaseException:
            self._sharing.close()  # or it would count as one that lives here
            raise
        self._on_gate = on_gate
        self._suspect = False
        self._intact = Snapshot()
        self._audits: dict[tuple[str, str], tuple[str, ...]] = {}

    def judge(self, question: Question) -> Evaluation:
        """Through all the gates of the question's level, in order.

        A question that lacks memory on a shared GPU is judged once more with all of it: what others hold is
        no fault of a candidate's, nor of a task's.
        """
        started = self._begun()
        records: list[GateRecord] = []
        refusal = self._static(question, records)
        if refusal is not None:
            return self._evaluation(question, None, Rejected(refusal), records, started)
        need = self._backend.need(question.task, question.level_settings.input_sets)
        shared = self._sharing.crowded()  # a judge that is here now may have ended by then
        try:
            evaluation = self._admitted(question, need, records, started)
            if not _lacks_memory(evaluation) or not (shared or self._sharing.crowded()):
                return evaluation
        except (EggError, torch.OutOfMemoryError) as error:
            if not memory.was_lacking(str(error)) or not (shared or self._sharing.crowded()):
                raise
        evaluation = self._admitted(question, EVERYTHING, records, started)
        if _lacks_memory(evaluation) and self._sharing.crowded():
            return replace(evaluation, warnings=(*evaluation.warnings, NOT_ALL))
        return evaluation

    def record(self, request: RecordRequest) -> Recording:
        """What torch.compile generates for a task. Nothing is judged, and no candidate is there."""
        started = self._now()
        need = self._backend.need(request.task, 1)
        with self._sharing.admitted(need), self._considerate():
            self._sharing.together()
            try:
                found = self._backend.record(request)
            finally:
                try:
                    self._backend.rest()
                finally:
                    self._sharing.leave()
        self._intact.check(request.task)
        return replace(found, seconds=self._now() - started)

    def plan(self, request: PlanRequest) -> PlanAnswer:
        """A plan of the candidate's calls, verified; or why there is none. Nothing else is judged."""
        started = self._now()
        with self._considerate():
            self._sharing.together()
            try:
                found = plans.recorded(request, self._backend.recorder(request))
            finally:
                try:
                    self._backend.rest()
                finally:
                    self._sharing.leave()
        self._intact.check(request.task)
        return replace(found, seconds=self._now() - started)

    def _admitted(
        self, question: Question, need: int | None, records: list[GateRecord], started: _Begun
    ) -> Evaluation:
        """With so much memory set aside, to the end, and then off the device."""
        gates = list(records)
        with self._sharing.admitted(need), self._considerate():
            self._sharing.together()
            try:
                return self._attended(question, gates, started)
            except BaseException as error:
                _let_go(error)
                raise
            finally:
                try:
                    self._backend.rest()
                finally:
                    self._sharing.leave()

    def _considerate(self) -> AbstractContextManager[None]:
        """The task's code lets other judges measure before each of its runs, and while it needs no GPU."""
        return sharing_gpu(self._sharing.apart, self._sharing.give_way)

    def _attended(self, question: Question, records: list[GateRecord], started: _Begun) -> Evaluation:
        trial: Trial | None = None
        try:
            self._check_health()
            trial = self._backend.trial(question)
            self._intact.check(question.task, trial.parts())
            gates = list(records)
            refusal = self._through_gates(trial, question, records)
            while refusal is not None and (other := self._backend.again(question, trial, refusal.reason)):
                trial.close()
                trial, records[:] = other, gates
                refusal = self._through_gates(trial, question, records)
            verdict = Rejected(refusal) if refusal is not None else self._accepted(trial)
        finally:
            if trial is not None:
                trial.close()
        self._sharing.together()  # an audit of the task disturbs no measurement
        return self._evaluation(question, trial, verdict, records, started)

    def _evaluation(
        self,
        question: Question,
        trial: Trial | None,
        verdict: Accepted | Rejected,
        records: list[GateRecord],
        started: _Begun,
    ) -> Evaluation:
        return Evaluation(
            **question.identity,
            machine=self._machine(trial),
            verdict=verdict,
            gates=tuple(records),
            warnings=self._warnings(trial, question),
            seconds=self._now() - started.at,
            waited=Waited(
                **{
                    wait.value: round(seconds - started.waits[wait], 3)
                    for wait, seconds in self._sharing.waits.items()
                }
            ),
            contenders=_ranked(question, trial, verdict),
        )

    def _through_gates(self, trial: Trial, question: Question, records: list[GateRecord]) -> Refusal | None:
        steps = self._backend.pipeline(question, trial)
        pipeline = [step for step in steps if step.gate not in question.skip]
        for step in pipeline:
            gate = step.gate
            self._on_gate(gate)
            if step.alone:
                self._sharing.alone()
            else:
                self._sharing.together()
            started = self._now()
            refusal, notes = None, {}
            try:
                notes = step.run(trial)
                if step is pipeline[-1]:
                    trial.connection.check_integrity()
            except Refused as refused:
                refusal = _with_sizes(refused.at(gate), trial)
            except Fault as fault:
                self._suspect = True
                refusal = Refusal(gate, fault.reason, fault.evidence, hint_for(fault.reason), fault.facts)
                refusal = _with_sizes(refusal, trial)
            records.append(GateRecord(gate, refusal is None, self._now() - started, notes))
            self._intact.check(question.task, trial.parts())
            if refusal is not None:
                return refusal
        return None

    def _now(self) -> float:
        """Seconds on a clock that stands still while others are waited for."""
        return time.perf_counter() - sum(self._sharing.waits.values())

    def _begun(self) -> _Begun:
        return _Begun(self._now(), dict(self._sharing.waits))

    def _static(self, question: Question, records: list[GateRecord]) -> Refusal | None:
        if Gate.STATIC in question.skip:
            return None
        started = self._now()
        refusal = static.check(question.candidate, question.policy.library_calls)
        if refusal is not None:
            refusal = replace(refusal, facts=_facts(refusal, question.candidate))
        records.append(GateRecord(Gate.STATIC, refusal is None, self._now() - started))
        return refusal

    def _accepted(self, trial: Trial | None) -> Accepted:
        assert trial is not None
        worst = trial.checks.worst
        return Accepted(
            Correctness(
                checks=worst.checks,
                worst_max_error=worst.max_ratio,
                worst_rms_error=worst.rms_ratio,
                relative_error=worst.relative,
                reference_error=worst.reference_relative,
                kernelbench=worst.kernelbench,
                eager_kernelbench=worst.reference_kernelbench,
                eager_max_error=worst.reference_max,
                yardstick=trial.reference.yardstick.value,
            ),
            trial.provenance or Provenance({}, {}, None),
            self._backend.performance(trial),
            trial.verified,
        )

    def _check_health(self) -> None:
        """After a fault: prove on a fresh process that the machine still works."""
        if not self._suspect:
            return
        worker = self._backend.forkserver.worker()
        try:
            healthy = worker.ask(Canary(), 60).healthy
        except Fault as fault:
            raise MachineError(
                f"the machine is not well after a fault: {fault.evidence}", "run `egg doctor`"
            ) from fault
        finally:
            worker.end()
        if not healthy:
            raise MachineError("a trivial kernel gives wrong results", "run `egg doctor`; reset the GPU")
        self._suspect = False

    def _machine(self, trial: Trial | None) -> Machine:
        worker = trial.connection.worker if trial is not None else None
        return Machine(
            device=self._backend.device.type,
            gpu=self._backend.gpu_name,
            python=platform.python_version(),
            torch=torch.__version__,
            triton=triton.__version__,
            driver=driver_version(self._backend.device),
            sandbox=worker.means if worker is not None else (),
        )

    def _warnings(self, trial: Trial | None, question: Question) -> tuple[str, ...]:
        skipped = tuple(f"gate {gate.value} was skipped on request" for gate in question.skip)
        if trial is None:
            return skipped
        return (*self._task_warnings(question), *trial.warnings, *skipped)

    def _task_warnings(self, question: Question) -> tuple[str, ...]:
        """What the task's own audit says; made once per task, where the level asks for it."""
        key = (question.task.sha256, question.policy.precision.value)
        if key not in self._audits and question.level_settings.audit_task:
            device = self._backend.device
            try:
                found = audit(question.task, question.policy.precision, device, rescaled=device.type == "cpu")
                self._audits[key] = found.warnings if found.degenerate or found.constant_inputs else ()
            except (TaskError, MachineError) as reason:
                warning = (f"the task could not be audited: {reason.message}",)
                if memory.was_lacking(reason.message):
                    return warning  # not for good: another time it may be there
                self._audits[key] = warning
        return self._audits.get(key, ())

    def close(self) -> None:
        self._backend.close()
        self._sharing.close()


def _with_sizes(refusal: Refusal, trial: Trial) -> Refusal:
    """With its facts complete; names the shapes that were run, where the evidence names no others."""
    facts = _facts(refusal, trial.candidate)
    refusal = replace(refusal, facts=facts)
    if refusal.gate in SAYS_ITS_SIZES or facts.own_size:
        return refusal
    return replace(refusal, evidence=f"{refusal.evidence} (run at {trial.sizes()})")


def _facts(refusal: Refusal, candidate: Candidate) -> RefusalFacts:
    """With the functions of the file that the evidence, maybe the text of an exception, names."""
    defined = dict.fromkeys(re.findall(r"^\s*def (\w+)", candidate.source, re.MULTILINE))
    mentioned = set(re.findall(r"\w+", refusal.evidence))
    functions = tuple(name for name in defined if name in mentioned)
    return replace(refusal.facts or RefusalFacts(), functions=functions)


def _ranked(question: Question, trial: Trial | None, verdict: Accepted | Rejected) -> tuple[Contender, ...]:
    """Where the candidate itself was refused no file has a time."""
    if trial is not None and trial.side_by_side.ranked:
        return trial.side_by_side.ranked
    why = verdict.refusal.reason if isinstance(verdict, Rejected) else ""
    return tuple(Contender(file.hash, None, None, why or "it was not timed") for file in question.contenders)


def _lacks_memory(evaluation: Evaluation) -> bool:
    """Whether the candidate, a baseline or the fp64 run found no memory; a false report costs time."""
    sentences = [*evaluation.warnings, *(rival.reason for rival in evaluation.contenders)]
    if isinstance(evaluation.verdict, Rejected):
        refusal = evaluation.verdict.refusal
        if refusal.reason == "limits.memory":
            return True
        sentences.append(refusal.evidence)
    return any(map(memory.was_lacking, sentences))


def _let_go(error: BaseException | None) -> None:
    """Drop what the frames of a raised error hold: tensors, gigabytes of them, and others wait for those."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()
