"""The judge: lead a candidate through the gates; the first that fails ends it."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable

import torch
import triton

from egg.core.errors import MachineError, TaskError
from egg.core.evaluation import (
    Accepted,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Machine,
    Provenance,
    Refusal,
    Rejected,
)
from egg.evaluator import static
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates.hints import hint_for
from egg.evaluator.machine import driver_version
from egg.evaluator.process.child import Fault
from egg.evaluator.question import Question
from egg.evaluator.task.audit import audit
from egg.evaluator.venues import venue_on


class Judge:
    """Judges candidates one after another on one device. Lives in the oracle process."""

    def __init__(self, device: torch.device, on_gate: Callable[[Gate], None] = lambda _: None) -> None:
        self._venue = venue_on(device)
        self._on_gate = on_gate
        self._suspect = False
        self._audits: dict[tuple[str, str], tuple[str, ...]] = {}

    def judge(self, question: Question) -> Evaluation:
        """Through all the gates of the question's level, in order."""
        started = time.perf_counter()
        records: list[GateRecord] = []
        refusal = self._static(question, records)
        exam: Exam | None = None
        try:
            if refusal is None:
                self._check_health()
                exam = self._venue.exam(question)
                refusal = self._through_gates(exam, question, records)
            verdict = Rejected(refusal) if refusal is not None else self._accepted(exam)
        except BaseException:
            gc.collect()  # frames of what was raised hold tensors, gigabytes of them
            raise
        finally:
            if exam is not None:
                exam.close()
        return Evaluation(
            task=question.task.name,
            task_hash=question.task.hash,
            candidate=question.candidate.name,
            candidate_hash=question.candidate.hash,
            policy=question.policy,
            machine=self._machine(exam),
            verdict=verdict,
            gates=tuple(records),
            warnings=self._warnings(exam, question),
            seconds=time.perf_counter() - started,
        )

    def _through_gates(self, exam: Exam, question: Question, records: list[GateRecord]) -> Refusal | None:
        for gate, run in self._venue.course(question.carefully):
            if gate in question.skip:
                continue
            self._on_gate(gate)
            started = time.perf_counter()
            refusal, notes = None, {}
            try:
                notes = run(exam)
            except Refused as refused:
                refusal = refused.at(gate)
            except Fault as fault:
                self._suspect = True
                refusal = Refusal(gate, fault.reason, fault.evidence, hint_for(fault.reason))
            records.append(GateRecord(gate, refusal is None, time.perf_counter() - started, notes))
            if refusal is not None:
                return refusal
        return None

    def _static(self, question: Question, records: list[GateRecord]) -> Refusal | None:
        if Gate.STATIC in question.skip:
            return None
        started = time.perf_counter()
        refusal = static.check(question.candidate, question.policy.library_calls)
        records.append(GateRecord(Gate.STATIC, refusal is None, time.perf_counter() - started))
        return refusal

    def _accepted(self, exam: Exam | None) -> Accepted:
        assert exam is not None
        worst = exam.worst
        return Accepted(
            Correctness(
                checks=worst.checks,
                worst_max_error=worst.max_ratio,
                worst_rms_error=worst.rms_ratio,
                relative_error=worst.relative,
                reference_error=worst.reference_relative,
                kernelbench=worst.kernelbench,
            ),
            Provenance(**(exam.provenance or {"kernels": {}, "library_ops": {}, "own_share": None})),
            self._venue.performance(exam),
        )

    def _check_health(self) -> None:
        """After a fault: prove on a fresh process that the machine still works."""
        if not self._suspect:
            return
        child = self._venue.nursery.child()
        try:
            healthy = child.request("canary", 60)["healthy"]
        except Fault as fault:
            raise MachineError(
                f"the machine is not well after a fault: {fault.evidence}", "run `egg doctor`"
            ) from fault
        finally:
            child.end()
        if not healthy:
            raise MachineError("a trivial kernel gives wrong results", "run `egg doctor`; reset the GPU")
        self._suspect = False

    def _machine(self, exam: Exam | None) -> Machine:
        return Machine(
            device=self._venue.device.type,
            gpu=self._venue.gpu_name,
            python=platform.python_version(),
            torch=torch.__version__,
            triton=triton.__version__,
            driver=driver_version(self._venue.device),
            sandbox=exam.child.means if exam is not None and exam.child is not None else (),
        )

    def _warnings(self, exam: Exam | None, question: Question) -> tuple[str, ...]:
        skipped = tuple(f"gate {gate.value} was skipped on request" for gate in question.skip)
        if exam is None:
            return skipped
        return (*self._task_warnings(question), *exam.warnings, *skipped)

    def _task_warnings(self, question: Question) -> tuple[str, ...]:
        """What the task's own audit says; made once per task, where the level asks for it."""
        key = (question.task.hash, question.policy.precision.value)
        if key not in self._audits and question.carefully.audit_task:
            device = self._venue.device
            try:
                found = audit(question.task, question.policy.precision, device, rescaled=device.type == "cpu")
                self._audits[key] = found.warnings if found.degenerate or found.constant_inputs else ()
            except (TaskError, MachineError) as reason:
                self._audits[key] = (f"the task could not be audited: {reason.message}",)
        return self._audits.get(key, ())

    def close(self) -> None:
        self._venue.close()
