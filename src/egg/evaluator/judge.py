"""The judge: lead a candidate through the gates; the first that fails ends it.

:class:`Judge` lives in the oracle process and keeps what the next evaluation can use: the
prewarmed candidate processes, and the last task's compiled baselines.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import triton

from egg.core.errors import MachineError, TaskError
from egg.core.evaluation import (
    Accepted,
    Compiled,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Machine,
    Measured,
    Provenance,
    Refusal,
    Rejected,
)
from egg.core.policy import Policy
from egg.core.source import Task
from egg.evaluator import static
from egg.evaluator.exam import Exam, Offline, Refused
from egg.evaluator.gates import (
    build,
    clock,
    compile,
    correctness,
    plausibility,
    provenance,
    regrade,
    sanitizer,
    state,
    timing,
)
from egg.evaluator.gates.hints import hint_for
from egg.evaluator.machine import MEMORY_FRACTION, limits_for
from egg.evaluator.opponents import Opponents
from egg.evaluator.process.child import Fault, Nursery
from egg.evaluator.program import Program
from egg.evaluator.question import Question
from egg.evaluator.reference import BUILD_SEED, Reference
from egg.evaluator.rescale import CannotRescale, Rescaled, cost_of, rescale
from egg.hardware.gpus import Gpu, find, resolve
from egg.hardware.roofline import floor_seconds

GateRun = Callable[[Exam], dict[str, Any]]
INTERPRETER_BUDGETS = ((3e7, 40_000), (1e8, 400_000), (3e8, 3_000_000), (1e9, 12_000_000))
"""FLOPs and elements the interpreter is given, smallest first: a task that cannot be so small gets more."""
DEFAULT_TARGET = "H200"


class Judge:
    """Judges candidates one after another on one device."""

    def __init__(self, device: torch.device, on_gate: Callable[[Gate], None] = lambda _: None) -> None:
        self.device = device
        self._on_gate = on_gate
        self._opponents: Opponents | None = None
        self._suspect = False
        limits = limits_for(device)
        if device.type == "cuda":
            warm = {"device": str(device), "memory_fraction": MEMORY_FRACTION, "watch": True}
            self._nursery = Nursery("cuda", limits, warm)
            self._compilers: Nursery | None = None
        else:
            self._nursery = Nursery("interpret", limits, {"device": "cpu", "watch": True})
            self._compilers = Nursery("compile", limits, {"device": "cpu", "watch": False})

    def judge(self, question: Question) -> Evaluation:
        """Through all the gates of the question's level, in order."""
        started = time.perf_counter()
        records: list[GateRecord] = []
        refusal = self._static(question, records)
        exam: Exam | None = None
        try:
            if refusal is None:
                self._check_health()
                exam = self._exam(question)
                refusal = self._gates(exam, question, records)
            verdict = Rejected(refusal) if refusal else Accepted(*self._findings(exam, question))
        finally:
            if exam is not None:
                exam.close()
        return Evaluation(
            task=question.task.name,
            task_hash=question.task.hash,
            candidate=question.candidate.name,
            candidate_hash=question.candidate.hash,
            policy=question.policy,
            machine=self.machine(exam),
            verdict=verdict,
            gates=tuple(records),
            warnings=self._warnings(exam, question),
            seconds=time.perf_counter() - started,
        )

    def _gates(self, exam: Exam, question: Question, records: list[GateRecord]) -> Refusal | None:
        for gate, run in self._order(question):
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

    def _order(self, question: Question) -> list[tuple[Gate, GateRun]]:
        care, on_gpu = question.carefully, self.device.type == "cuda"
        order: list[tuple[Gate, GateRun, bool]] = [
            (Gate.BUILD, compile.run, not on_gpu),
            (Gate.BUILD, build.run, True),
            (Gate.PROVENANCE, provenance.run, True),
            (Gate.CORRECTNESS, correctness.run, True),
            (Gate.STATE, state.run, True),
            (Gate.SANITIZER, sanitizer.run, on_gpu and care.sanitize),
            (Gate.TIMING, timing.run, on_gpu),
            (Gate.CLOCK, clock.run, on_gpu),
            (Gate.PLAUSIBILITY, plausibility.run, on_gpu),
            (Gate.REGRADE, regrade.run, care.regrades > 0),
        ]
        return [(gate, run) for gate, run, wanted in order if wanted and gate not in question.skip]

    def _static(self, question: Question, records: list[GateRecord]) -> Refusal | None:
        if Gate.STATIC in question.skip:
            return None
        started = time.perf_counter()
        refusal = static.check(question.candidate, question.policy.library_calls)
        records.append(GateRecord(Gate.STATIC, refusal is None, time.perf_counter() - started))
        return refusal

    def _exam(self, question: Question) -> Exam:
        """Set the reference up on this device: at full size on a GPU, rescaled for the interpreter."""
        policy, care = question.policy, question.carefully
        full = Program.load(question.task)
        if self.device.type == "cuda":
            opponents = self._kept_opponents(full, policy)
            reference = Reference(opponents.program, policy.precision, self.device)
            return Exam(
                reference, question.candidate, policy, care, self._nursery, gpu=self.gpu, opponents=opponents
            )
        assert self._compilers is not None
        target = resolve(question.target or DEFAULT_TARGET)
        small = _small_enough(question.task)
        offline = Offline(full, self._compilers, target, small.changes)
        program = Program.load(small.task) if small.changes else full
        reference = Reference(program, policy.precision, self.device)
        return Exam(reference, question.candidate, policy, care, self._nursery, gpu=target, offline=offline)

    def _kept_opponents(self, full: Program, policy: Policy) -> Opponents:
        kept = self._opponents
        if kept is None or kept.program.task.hash != full.task.hash or kept.precision != policy.precision:
            torch._dynamo.reset()
            module = full.build(BUILD_SEED, self.device, policy.precision)
            self._opponents = kept = Opponents(full, policy.precision, module)
        return kept

    def _findings(
        self, exam: Exam | None, question: Question
    ) -> tuple[Correctness, Provenance, Measured | Compiled]:
        assert exam is not None
        worst = exam.worst
        right = Correctness(
            worst.checks,
            worst.max_ratio,
            worst.rms_ratio,
            worst.relative,
            worst.reference_relative,
            worst.kernelbench,
        )
        whence = Provenance(**(exam.provenance or {"kernels": {}, "library_ops": {}, "own_share": None}))
        return right, whence, self._performance(exam)

    def _performance(self, exam: Exam) -> Measured | Compiled:
        if exam.offline is not None:
            changed = ", ".join(f"{n} {old} -> {new}" for n, (old, new) in exam.offline.changes.items())
            return Compiled(
                exam.offline.target.name,
                exam.offline.kernels,
                self._predicted(exam.offline),
                changed or "full",
            )
        found = {k: v for k, v in exam.measured.items() if k not in ("cases", "sets")}
        eager = next(b for b in found["baselines"] if b.name == "eager")
        return Measured(
            gpu=torch.cuda.get_device_name(self.device),
            faster=eager.speedup.low > 1.0 + found["noise_floor"],
            **found,
        )

    def _predicted(self, offline: Offline) -> float | None:
        """The roofline floor of the task at full size; ``None`` where its work cannot be counted."""
        try:
            cost = cost_of(offline.full.task)
        except TaskError:
            return None
        floor = floor_seconds(offline.target, flops=cost.flops, bytes=cost.least_bytes, precision="match")
        return floor * 1e3

    def _check_health(self) -> None:
        """After a fault: prove on a fresh process that the machine still works."""
        if not self._suspect:
            return
        child = self._nursery.child()
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

    @property
    def gpu(self) -> Gpu | None:
        return find(torch.cuda.get_device_name(self.device)) if self.device.type == "cuda" else None

    def machine(self, exam: Exam | None = None) -> Machine:
        on_gpu = self.device.type == "cuda"
        means = exam.child.means if exam is not None and exam.child is not None else ()
        return Machine(
            device=self.device.type,
            gpu=torch.cuda.get_device_name(self.device) if on_gpu else "",
            python=platform.python_version(),
            torch=torch.__version__,
            triton=triton.__version__,
            sandbox=means,
        )

    def _warnings(self, exam: Exam | None, question: Question) -> tuple[str, ...]:
        skipped = tuple(f"gate {gate.value} was skipped on request" for gate in question.skip)
        return (*(exam.warnings if exam is not None else ()), *skipped)

    def close(self) -> None:
        self._nursery.close()
        if self._compilers is not None:
            self._compilers.close()


def _small_enough(task: Task) -> Rescaled:
    """The task at the smallest size it can be brought to that still looks like itself."""
    for flops, elements in INTERPRETER_BUDGETS[:-1]:
        with contextlib.suppress(CannotRescale):
            return rescale(task, max_flops=flops, max_elements=elements)
    flops, elements = INTERPRETER_BUDGETS[-1]
    return rescale(task, max_flops=flops, max_elements=elements)
