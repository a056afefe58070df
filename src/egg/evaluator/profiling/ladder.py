"""The ladder of profiles: counters, times, resources, the model; as high as this machine lets us climb.

Times come first in the doing, though counters are the better rung: only who knows how long each
kernel takes can tell Nsight Compute which of them to look at. So a program is timed; where that
works the hottest kernels are counted; where it does not, its launches are captured and compiled
without a GPU; where that fails too, there is only the model of the task. Every rung that was not
reached is named in the profile, with the reason.

Candidate code runs in processes of its own, confined and under a deadline, on every rung.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from egg.analysis.predict import FITTED, Constants
from egg.core.errors import EggError, MachineError, TaskError, UsageError
from egg.core.listing import Listings
from egg.core.policy import Precision
from egg.core.profile import Lowered, Profile, Rung
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.evaluator.offline.target import GpuTarget, resolve_target
from egg.evaluator.process.confined import Cell, Ended
from egg.evaluator.process.machine import choose_device, limits_for
from egg.evaluator.profiling import merge, reply
from egg.evaluator.profiling.counters import Unreached, collect
from egg.evaluator.profiling.metrics import metrics_for
from egg.evaluator.profiling.times import Garbled
from egg.hardware.detect import PresentGpu, cuda_tool, present_gpus
from egg.hardware.gpus import Gpu, resolve

DEFAULT_TARGET = "H200"
IMPORTS_BYTES = 12 << 30
"""Address space that importing torch and triton takes, CUDA's libraries included."""
MOST_THREADS = 512
"""Of the program and of the tool that watches it."""
AUTOTUNE_ONCE = {"TRITON_CACHE_AUTOTUNING": "1"}
"""What one process of a program finds by tuning the next one takes up, and profiles the same kernels."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds after which each of the processes is ended."""

    times: float = 180.0
    counters: float = 300.0
    compile: float = 180.0


class CannotRun(EggError):
    """The profiled kernel does not run, so there is nothing to see: its fault, not the machine's."""

    exit_code = 1

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(f"the kernel cannot be profiled: {reason}: {evidence}", "run `egg eval` on it first")
        self.reason, self.evidence = reason, evidence


class Rungs(Protocol):
    """One way to see for each rung; each raises :class:`Unreached` where it cannot."""

    def counters(self, seen: Profile) -> Profile:
        """``seen``, a profile by times, with counters added."""
        ...

    def times(self) -> Profile: ...
    def resources(self) -> Profile: ...
    def model(self) -> Profile: ...


def climb(rungs: Rungs, *, counters: bool = True) -> Profile:
    """As high as it goes; what was not reached is written into the profile, best rung first."""
    lowered: list[Lowered] = []
    try:
        profile = rungs.times()
    except Unreached as why:
        lowered.append(Lowered(Rung.COUNTERS, f"nothing was timed: {why.reason}", why.hint))
        lowered.append(Lowered(Rung.TIMES, why.reason, why.hint))
        profile = _unmeasured(rungs, lowered)
        return replace(profile, lowered=tuple(lowered))
    try:
        if not counters:
            raise Unreached("counters were switched off")
        profile = rungs.counters(profile)
    except Unreached as why:
        lowered.append(Lowered(Rung.COUNTERS, why.reason, why.hint))
    return replace(profile, lowered=tuple(lowered))


def _unmeasured(rungs: Rungs, lowered: list[Lowered]) -> Profile:
    try:
        return rungs.resources()
    except Unreached as why:
        lowered.append(Lowered(Rung.RESOURCES, why.reason, why.hint))
        return rungs.model()


def profile(
    task: Task,
    candidate: Candidate | None,
    *,
    device: str = "auto",
    target: str | None = None,
    precision: Precision = Precision.MATCH,
    counters: bool = True,
    stage: Stage | None = None,
    ncu: Path | None = None,
    floor_milliseconds: float | None = None,
    deadlines: Deadlines | None = None,
    constants: Constants = FITTED,
) -> Profile:
    """Profile a kernel file, or the task's own program in eager PyTorch where ``candidate`` is ``None``.

    Where a GPU is present and is the ``target``, or none is named, it measures; for any other
    target nothing is measured, however many GPUs there are. ``stage`` chooses which counters are
    read; ``ncu`` is Nsight Compute's command-line tool, looked for where it usually is. The task's
    roofline floor, where it is known, stands for what libraries do in a prediction of the whole;
    ``constants`` are those of the model that predicts.

    Raises :class:`CannotRun` where the kernel fails, :class:`~egg.core.errors.TaskError` where
    the task does.
    """
    place = place_of(device, target)
    terms = Terms(precision, stage, ncu, floor_milliseconds, deadlines or Deadlines(), constants)
    with Bench(task, candidate, place, terms) as bench:
        return climb(bench, counters=counters)


def code(
    task: Task,
    candidate: Candidate,
    kernel: str,
    *,
    device: str = "auto",
    target: str | None = None,
    precision: Precision = Precision.MATCH,
    deadlines: Deadlines | None = None,
) -> Listings:
    """The compiled code of one kernel of a file: as the GPU here runs it, else as compiled for ``target``.

    Raises :class:`CannotRun` where the file fails; what it launches beside is in the answer.
    """
    place = place_of(device, target)
    if place.present is None and place.compiler_target is None:
        raise UsageError(f"no compiler target is known for {place.name}", "name a GPU with --target")
    terms = Terms(precision, deadlines=deadlines or Deadlines(), kernel=kernel)
    with Bench(task, candidate, place, terms) as bench:
        return bench.code()


@dataclass(frozen=True)
class Place:
    """The GPU that the profile is about, and whether it is here to measure."""

    name: str
    device: str
    gpu: Gpu | None
    """Its row in the table, or where the table does not know it, the one derived from its driver's word."""
    present: PresentGpu | None
    """``None`` where nothing can be measured, and ``why`` says why not."""
    why: str = ""

    @property
    def compiler_target(self) -> dict[str, Any] | None:
        """What the compiler needs to know of it; ``None`` where neither table has it."""
        gpu = self.gpu
        if gpu is not None:
            target = GpuTarget(
                gpu.backend, gpu.triton_arch, gpu.shared_per_block, gpu.warp_size, gpu.sms, gpu.memory_bytes,
                gpu.name,
            )  # fmt: skip
            return asdict(target)
        try:
            return asdict(resolve_target(self.present.arch)) if self.present else None
        except UsageError:
            return None


def place_of(device: str, target: str | None) -> Place:
    """The present GPU if it is the target or none is named; else the target, which then cannot measure."""
    chosen, wanted = choose_device(device), resolve(target) if target else None
    if chosen.type != "cuda":
        gpu = wanted or resolve(DEFAULT_TARGET)
        why = "the CPU was asked for" if present_gpus() else "there is no GPU here"
        return Place(gpu.name, str(chosen), gpu, None, why)
    present = present_gpus()[chosen.index or 0]
    if wanted is None or wanted == present.spec:
        return Place(present.name, str(chosen), present.best_row, present)
    why = f"the GPU here is {present.name}, and the target is {wanted.name}"
    return Place(wanted.name, str(chosen), wanted, None, why)


@dataclass(frozen=True)
class Terms:
    """How to look at a program."""

    precision: Precision = Precision.MATCH
    stage: Stage | None = None
    ncu: Path | None = None
    floor_milliseconds: float | None = None
    deadlines: Deadlines = Deadlines()
    constants: Constants = FITTED
    kernel: str = ""
    """Whose code is asked for."""


class Bench:
    """The rungs for one program on this machine: a cell in which its processes run one after another."""

    def __init__(self, task: Task, candidate: Candidate | None, place: Place, terms: Terms) -> None:
        self._task, self._candidate, self._place, self._terms = task, candidate, place, terms
        self._timed: reply.Times | None = None
        limits = replace(limits_for(choose_device(place.device)), processes=MOST_THREADS)
        if limits.address_space is not None:
            limits = replace(limits, address_space=limits.address_space + IMPORTS_BYTES)
        self._cell = Cell(limits, "egg-profile-")
        job = {
            "task": {"name": task.name, "source": task.source},
            "candidate": candidate.source if candidate else None,
            "precision": terms.precision.value,
            "device": place.device,
            "target": place.compiler_target,
            "kernel": terms.kernel,
        }
        self._cell.put(reply.JOB, json.dumps(job))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._cell.__exit__()

    @property
    def _name(self) -> str:
        return self._candidate.name if self._candidate else self._task.name

    def times(self) -> Profile:
        if self._place.present is None:
            raise Unreached(self._place.why, f"profile it on a machine with an {self._place.name}")
        seen = self._ask("times", self._terms.deadlines.times).times
        if seen is None:
            raise Unreached("the profiled process wrote garbage: no times")
        self._timed = seen
        if seen.unseen:
            whole = f"the whole takes {seen.call_microseconds / 1e3:.4g} ms by the device's clock"
            raise Unreached(f"{seen.unseen}; {whole}", "PyTorch's profiler needs CUPTI: run `egg doctor`")
        return merge.by_times(self._name, self._place.name, self._place.gpu, seen, self._terms.constants)

    def counters(self, seen: Profile) -> Profile:
        present, timed = self._place.present, self._timed
        assert present is not None
        assert timed is not None
        if present.arch.startswith("gfx"):
            raise Unreached("Nsight Compute does not know GPUs of AMD's")
        return count(self._cell, self._command("counters"), seen, timed, present.arch, self._terms)

    def resources(self) -> Profile:
        name, gpu, terms = self._place.name, self._place.gpu, self._terms
        if self._timed is not None and self._timed.resources:
            compiled = reply.Compiled(self._timed.resources, {}, "")
            return merge.by_resources(
                self._name, name, gpu, compiled, terms.floor_milliseconds, terms.constants
            )
        if self._candidate is None:
            raise Unreached("PyTorch's own kernels are compiled already, in its libraries")
        if self._place.compiler_target is None:
            raise Unreached(f"no compiler target is known for {name}")
        compiled = self._ask("compile", self._terms.deadlines.compile).compiled
        if compiled is None:
            raise Unreached("the profiled process wrote garbage: no resources")
        if compiled.unsupported:
            why = f"its launches could not be captured: {compiled.unsupported}"
            raise Unreached(why, "profile it on a GPU")
        if not compiled.resources:
            raise Unreached("it launches no Triton kernel of its own")
        return merge.by_resources(self._name, name, gpu, compiled, terms.floor_milliseconds, terms.constants)

    def model(self) -> Profile:
        nothing = reply.Compiled((), {}, "")
        place, terms = self._place, self._terms
        whole = merge.whole(place.name, place.gpu, nothing, terms.floor_milliseconds, terms.constants)
        return Profile(self._name, Rung.MODEL, self._place.name, (), None, whole, 0)

    def code(self) -> Listings:
        """The code of a kernel: as the GPU here runs it, else compiled for the target."""
        mode = "loaded" if self._place.present is not None else "code"
        try:
            found = self._ask(mode, self._terms.deadlines.compile, reply.LONGEST_CODE).code
        except Unreached as why:
            raise MachineError(why.reason, why.hint) from None
        if found is None:
            raise MachineError("the profiled process wrote garbage: no code", "run `egg doctor`")
        if found.unsupported:
            raise CannotRun("capture.unsupported", f"its launches cannot be followed: {found.unsupported}")
        return replace(found.listings, gpu=self._place.name)

    def _command(self, mode: str) -> list[str]:
        return [sys.executable, "-m", "egg.evaluator.profiling.profiled", str(self._cell.folder), mode]

    def _ask(self, mode: str, seconds: float, longest: int = reply.LONGEST_TEXT) -> reply.Reply:
        """Run the program's process in a mode and read what it says."""
        ended = self._cell.run(
            self._command(mode), seconds, environment=AUTOTUNE_ONCE if mode in ("times", "loaded") else None
        )
        try:
            text = self._cell.take(reply.file_of(mode), reply.MOST_BYTES)
        except ValueError as nothing:
            raise self._death(ended, seconds, str(nothing)) from None
        try:
            answer = reply.read(text, longest)
        except Garbled as garbage:
            raise Unreached(f"the profiled process wrote garbage: {garbage}") from None
        if answer.fault is not None:
            raise self._blame(answer.fault)
        return answer

    def _death(self, ended: Ended, seconds: float, nothing: str) -> EggError:
        words = ended.output.strip().splitlines()[-3:]
        last = f"; last words: {' | '.join(words)}"[:2000] if words else ""
        if ended.cut == "time":
            return self._fault("limits.timeout", f"not done within {seconds:g} s, and ended{last}")
        if ended.cut == "memory":
            return self._fault("limits.memory", f"took more memory than it may{last}")
        how = f"signal {-ended.code}" if ended.code < 0 else f"exit {ended.code}"
        return self._fault("limits.died", f"the process ended without an answer ({how}, {nothing}){last}")

    def _blame(self, fault: reply.Fault) -> Exception:
        if fault.party == reply.TASK:
            return TaskError(fault.evidence, "does the task run by itself?")
        if fault.party == reply.MACHINE:
            return Unreached(fault.evidence, "run `egg doctor`")
        return self._fault(fault.reason, fault.evidence)

    def _fault(self, reason: str, evidence: str) -> EggError:
        if self._candidate is None:
            return TaskError(
                f"task {self._task.name!r}: {reason}: {evidence}", "does the task run by itself?"
            )
        return CannotRun(reason, evidence)


def count(
    cell: Cell, program: list[str], seen: Profile, timed: reply.Times, arch: str, terms: Terms
) -> Profile:
    """The rung of the counters: ``program`` once more under Nsight Compute, its hottest kernels watched."""
    tool = os.fspath(terms.ncu) if terms.ncu is not None else cuda_tool("ncu")
    if tool is None or not os.path.exists(tool):
        raise Unreached(
            "Nsight Compute (ncu) is not installed",
            "it comes with the CUDA toolkit, or by itself from developer.nvidia.com/nsight-compute",
        )
    wanted = merge.hottest(timed)
    if not wanted.functions:
        raise Unreached("the program runs no kernel that could be counted")
    metrics = metrics_for(terms.stage, arch)
    rows, unknown = collect(cell, tool, program, wanted, metrics, terms.deadlines.counters, AUTOTUNE_ONCE)
    return merge.with_counters(seen, timed, rows, wanted, unknown)
