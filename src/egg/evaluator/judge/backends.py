"""Where a candidate is judged: on a GPU, or on a machine without one.

A backend knows which gates apply, how to set the reference up, and what is known of the
candidate's performance; the judge knows none of that. Time is measured at one of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Compiled, Gate, Measured
from egg.core.policy import Precision
from egg.core.recording import Recording
from egg.core.source import Task
from egg.evaluator.gates import (
    build,
    clock,
    compile,
    compiled_beside,
    configurations,
    correctness,
    disorder,
    domain,
    fence,
    fixed,
    observed,
    own,
    plausibility,
    provenance,
    regrade,
    responses,
    sanitizer,
    side_by_side,
    sizes,
    state,
    timing,
)
from egg.evaluator.judge import plans
from egg.evaluator.judge.needs import bytes_needed
from egg.evaluator.judge.question import PlanRequest, Question, RecordRequest
from egg.evaluator.judge.recordings import recording_of
from egg.evaluator.judge.reduction import other_sizes, reduced
from egg.evaluator.process.handle import ForkServer, forkserver_for
from egg.evaluator.process.sharing import Sharing
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.facts import gpu_facts, program_facts
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import Rescaled
from egg.evaluator.task.stated import copied_constants, outside_of
from egg.evaluator.tensors import memory
from egg.evaluator.timing.contenders import SideBySide
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.timing.recorded import ON_CPU
from egg.evaluator.trial.levels import Probes, Profile
from egg.evaluator.trial.trial import Notes, Offline, Trial
from egg.hardware.gpus import find, resolve


@dataclass(frozen=True)
class GateStep:
    """One part of a gate; a gate may have several."""

    gate: Gate
    run: Callable[[Trial], Notes]
    alone: bool = False
    """Whether the step needs the device alone: whatever is measured."""


Pipeline = list[GateStep]

SIZED = frozenset(
    (
        "candidate.error",
        "kernel.out_of_bounds",
        "kernel.hint",
        "kernel.undefined",
        "provenance.other_branch",
        "build.parameters",
    )
)
"""Reasons that may come from a size which is not the task's own."""
TIMEOUT = "limits.timeout"
DEFAULT_TARGET = "H200"
IDLE_BYTES = 1 << 30
"""What an oracle that has nothing to do may hold of a GPU that it shares, for its next candidate."""


class Backend(Protocol):
    """One device with everything needed to judge on it."""

    device: torch.device
    forkserver: ForkServer

    @property
    def gpu_name(self) -> str: ...
    def pipeline(self, question: Question, trial: Trial) -> Pipeline: ...
    def need(self, task: Task, sets: int) -> int | None:
        """Bytes of the device's memory that so many sets of inputs will take; ``None`` where unknown."""
        ...

    def trial(self, question: Question) -> Trial: ...
    def again(self, question: Question, trial: Trial, reason: str) -> Trial | None:
        """The same at another size, where ``reason`` may come from the one that was run; else ``None``."""
        ...

    def performance(self, trial: Trial) -> Measured | Compiled: ...
    def record(self, request: RecordRequest) -> Recording:
        """What torch.compile generates for a task here, or why nothing can be recorded."""
        ...

    def recorder(self, request: PlanRequest) -> plans.Recorder:
        """Where the host code of a candidate is recorded, and for which GPU."""
        ...

    def rest(self) -> None:
        """Between two questions: hold little of what others may need."""
        ...

    def close(self) -> None: ...


ForkServers = Mapping[str, ForkServer]
"""By kind; a judge that is confined was given them, as it could no longer start them."""


def backend_on(device: torch.device, sharing: Sharing, forkservers: ForkServers | None = None) -> Backend:
    kinds = ("cuda",) if device.type == "cuda" else ("interpret", "compile")
    found = forkservers or {kind: forkserver_for(kind, str(device)) for kind in kinds}
    return GpuBackend(device, sharing, found["cuda"]) if device.type == "cuda" else CpuBackend(found)


class GpuBackend:
    """Full size, measured; keeps the last task's baselines for its next candidate."""

    def __init__(self, device: torch.device, sharing: Sharing, forkserver: ForkServer) -> None:
        self.device = device
        self._sharing = sharing
        self.gpu_name = torch.cuda.get_device_name(device)
        self._opponents: Opponents | None = None
        self._need: tuple[tuple[str, int], int | None] | None = None
        """Of the last task."""
        self.forkserver = forkserver

    def pipeline(self, question: Question, trial: Trial) -> Pipeline:
        if question.contenders:
            return [
                GateStep(Gate.BUILD, build.run),
                GateStep(Gate.TIMING, side_by_side.prepare),
                GateStep(Gate.TIMING, side_by_side.run, alone=True),
            ]
        settings = question.level_settings
        return [
            GateStep(Gate.BUILD, build.run),
            GateStep(Gate.PROVENANCE, provenance.run),
            GateStep(Gate.CORRECTNESS, correctness.run),
            *([GateStep(Gate.CORRECTNESS, responses.run)] if settings.domain is Probes.ALL else []),
            GateStep(Gate.STATE, state.run),
            *([GateStep(Gate.DOMAIN, domain.run)] if settings.domain is not Probes.NONE else []),
            *([GateStep(Gate.SANITIZER, sanitizer.run)] if settings.sanitize else []),
            GateStep(Gate.TIMING, timing.prepare),
            GateStep(Gate.TIMING, timing.run, alone=True),
            GateStep(Gate.CLOCK, clock.run, alone=True),
            GateStep(Gate.TIMING, timing.settle),
            *([GateStep(Gate.PROVENANCE, observed.run)] if settings.profile is Profile.ALL else []),
            GateStep(Gate.PLAUSIBILITY, plausibility.run),
            *([GateStep(Gate.MEMORY, fence.run)] if settings.fence else []),
            *([GateStep(Gate.REGRADE, regrade.run)] if settings.regrades else []),
        ]

    def need(self, task: Task, sets: int) -> int | None:
        key = (task.sha256, sets)
        if self._need is None or self._need[0] != key:
            total = torch.cuda.get_device_properties(self.device).total_memory
            self._need = (key, bytes_needed(task, sets, total))
        return self._need[1]

    def trial(self, question: Question) -> Trial:
        opponents = self._opponents_for(question.task, question.policy.precision)
        return Trial(
            Reference(opponents.program, question.policy.precision, self.device),
            question.candidate,
            question.policy,
            question.level_settings,
            self.forkserver,
            restricted=Gate.STATIC not in question.skip,
            plan=question.plan,
            gpu=find(self.gpu_name),
            opponents=opponents,
            sharing=self._sharing,
            side_by_side=SideBySide(question.contenders),
        )

    def again(self, question: Question, trial: Trial, reason: str) -> Trial | None:
        """Everything was run at the task's own size."""
        return None

    def record(self, request: RecordRequest) -> Recording:
        opponents = self._opponents_for(request.task, request.precision)
        return recording_of(opponents, self.gpu_name, self._sharing.alone)

    def recorder(self, request: PlanRequest) -> plans.Recorder:
        target = find(self.gpu_name)
        if target is None:
            raise MachineError(
                f"{self.gpu_name} is not in the table of GPUs, so no plan can be recorded for it",
                "judge the file itself (--host author)",
            )
        return plans.Recorder(self.forkserver, target)

    def _opponents_for(self, task: Task, precision: Precision) -> Opponents:
        kept = self._opponents
        if kept is None or (kept.program.task.sha256, kept.precision) != (task.sha256, precision):
            kept = None  # or they would outlive being forgotten
            self._forget_opponents()
            self._opponents = kept = Opponents(
                Program.load(task), precision, self.device, apart=self._sharing.apart
            )
        return kept

    def _forget_opponents(self) -> None:
        """Compiled code and CUDA graphs hold memory that the next task needs."""
        if self._opponents is not None:
            self._opponents.program.unload()
            self._opponents = None
            torch._dynamo.reset()
            memory.collect(self.device)

    def rest(self) -> None:
        """Give back what is cached; and opponents that hold much, where others live on this GPU.

        Opponents of which one found no memory are made anew: it may be there the next time.
        """
        memory.collect(self.device)
        failed = self._opponents.failed if self._opponents is not None else {}
        much = torch.cuda.memory_reserved(self.device) > IDLE_BYTES
        if any(map(memory.was_lacking, failed.values())) or (much and self._sharing.crowded()):
            self._forget_opponents()

    def performance(self, trial: Trial) -> Measured | Compiled:
        """What was measured; where timing was skipped, what is known of the kernels."""
        found = trial.measured
        if found is None:
            return Compiled(self.gpu_name, trial.kernels, None, "full")
        assert found.wall_milliseconds is not None, "timing without the clock gate"
        assert found.wall_speedup is not None
        eager = next(b for b in found.baselines if b.name == "eager")
        return Measured(
            gpu=self.gpu_name,
            milliseconds=found.milliseconds,
            baselines=found.baselines,
            noise_floor=found.noise_floor,
            wall_milliseconds=found.wall_milliseconds,
            wall_speedup=found.wall_speedup,
            floor_milliseconds=found.floor_milliseconds,
            faster=eager.speedup.low > 1.0 + found.noise_floor,
            kernels=trial.kernels,
        )

    def close(self) -> None:
        self.forkserver.close()


class CpuBackend:
    """Compiled for a GPU that is not there, interpreted at a smaller size; nothing is measured."""

    gpu_name = ""

    def __init__(self, forkservers: ForkServers) -> None:
        self.device = torch.device("cpu")
        self.forkserver, self._compilers = forkservers["interpret"], forkservers["compile"]

    def pipeline(self, question: Question, trial: Trial) -> Pipeline:
        if question.contenders:
            raise UsageError("contenders are timed, and there is no GPU here", "judge them one by one")
        settings, offline = question.level_settings, trial.offline
        assert offline is not None
        if offline.too_large:
            return [
                GateStep(Gate.BUILD, compile.run),
                GateStep(Gate.BUILD, compile.check),
                GateStep(Gate.CORRECTNESS, fixed.own),
                GateStep(Gate.DOMAIN, fixed.excluded),
                GateStep(Gate.DOMAIN, fixed.refuse),
            ]
        return [
            GateStep(Gate.BUILD, compile.run),
            GateStep(Gate.BUILD, build.run),
            GateStep(Gate.BUILD, compile.check),
            GateStep(Gate.PROVENANCE, provenance.run),
            GateStep(Gate.PROVENANCE, compile.compare),
            GateStep(Gate.CORRECTNESS, correctness.run),
            *([GateStep(Gate.CORRECTNESS, responses.run)] if settings.domain is Probes.ALL else []),
            GateStep(Gate.CORRECTNESS, configurations.run),
            GateStep(Gate.CORRECTNESS, disorder.run),
            *([GateStep(Gate.CORRECTNESS, sizes.run)] if settings.domain is Probes.ALL else []),
            *([GateStep(Gate.CORRECTNESS, own.run)] if settings.domain is Probes.ALL else []),
            GateStep(Gate.STATE, state.run),
            *([GateStep(Gate.DOMAIN, fixed.excluded)] if offline.excluded is not None else []),
            *([GateStep(Gate.DOMAIN, domain.run)] if settings.domain is not Probes.NONE else []),
            *([GateStep(Gate.BUILD, compiled_beside.run)] if settings.domain is Probes.ALL else []),
            *([GateStep(Gate.PROVENANCE, observed.run)] if settings.profile is Profile.ALL else []),
            *([GateStep(Gate.REGRADE, regrade.run)] if settings.regrades else []),
        ]

    def trial(self, question: Question) -> Trial:
        target = resolve(question.target or DEFAULT_TARGET)
        outside = None
        if Gate.DOMAIN not in question.skip:
            outside = outside_of(question.candidate, question.task, question.policy.precision)
        found = reduced(question.task, outside, copied_constants(question.candidate, question.task))
        offline = Offline(Program.load(question.task), self._compilers, target, found.size.changes)
        offline.excluded, offline.too_large = found.excluded, found.too_large
        offline.sizes = iter(()) if found.too_large else other_sizes(question.task, found.size)
        return self._trial_at(question, found.size, offline)

    def _trial_at(self, question: Question, size: Rescaled, offline: Offline) -> Trial:
        return Trial(
            Reference(Program.load(size.task), question.policy.precision, self.device),
            question.candidate,
            question.policy,
            question.level_settings,
            self.forkserver,
            restricted=Gate.STATIC not in question.skip,
            plan=question.plan,
            gpu=offline.target,
            offline=offline,
        )

    def again(self, question: Question, trial: Trial, reason: str) -> Trial | None:
        """A file may be made for the task's own size, or for multiples of something; it is no worse for it.

        Where it raises, reads outside a tensor or takes another branch at the size that was run, the next
        size is judged, with what the compiler found at the full one. Where a call inside its domain takes too
        long at the smallest size there, no other is left.
        """
        offline = trial.offline
        assert offline is not None
        captured, excluded = offline.captured, offline.excluded
        too_large, size = "", None
        if captured is None or captured.faults:
            return None
        if reason in SIZED:
            size = next(offline.sizes, None)
        elif reason == TIMEOUT and excluded is not None and not offline.too_large:
            too_large, size = f"a call at {trial.sizes()} does not end in time", excluded.size
        if size is None:
            return None
        moved = replace(offline, full=Program.load(question.task), changes=size.changes, too_large=too_large)
        offline.worker = None  # it lives on in the other
        return self._trial_at(question, size, moved)

    def need(self, task: Task, sets: int) -> int | None:
        return None

    def record(self, request: RecordRequest) -> Recording:
        return Recording(None, ON_CPU)

    def recorder(self, request: PlanRequest) -> plans.Recorder:
        return plans.Recorder(self._compilers, resolve(request.target or DEFAULT_TARGET))

    def rest(self) -> None:
        pass

    def performance(self, trial: Trial) -> Compiled:
        offline = trial.offline
        assert offline is not None
        changes = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in offline.changes.items())
        floor = _predicted_floor(offline, trial.policy.precision)
        return Compiled(offline.target.name, compile.described(trial), floor, changes or "full")

    def close(self) -> None:
        self.forkserver.close()
        self._compilers.close()


def _predicted_floor(offline: Offline, precision: Precision) -> float | None:
    """Milliseconds of the roofline floor at full size; ``None`` where the work cannot be counted."""
    program = program_facts(offline.full.task)
    return gpu_facts(offline.target, precision, program).floor_milliseconds
