"""The profiled program, in a process of its own: ``python -m egg.evaluator.profiling.profiled FOLDER MODE``.

It runs confined, under a deadline, and possibly under Nsight Compute. ``FOLDER`` holds the job;
the reply is written beside it. Five modes:

- ``times``: warm calls until nothing changes any more, then a few under PyTorch's profiler with a
  cold L2 before each; the timeline, and the resources of the kernels really launched;
- ``counters``: the same warming up, then one call between the profiler's start and stop marks,
  for Nsight Compute, which watches from outside and writes what it saw itself;
- ``compile``: no GPU: the launches are captured at full size on fake tensors and compiled;
- ``code``, ``loaded``: the code of one kernel as text, compiled in the same way without a GPU, or as
  the program really loaded it on one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from egg.core.codec import to_json
from egg.core.errors import MachineError, TaskError
from egg.core.listing import Listings
from egg.core.policy import Precision
from egg.core.resources import KernelResources
from egg.core.source import Task
from egg.evaluator.offline import Capture, CaptureUnsupported, GpuTarget, capture, compile_all
from egg.evaluator.offline.compile import binaries
from egg.evaluator.offline.describe import describe_kernel
from egg.evaluator.offline.listing import listings
from egg.evaluator.profiling import reply, times
from egg.evaluator.profiling.times import Garbled
from egg.evaluator.task.precision import HALF_DTYPES, precision_scope
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import BUILD_SEED, FORWARD_SEED
from egg.evaluator.timing import stopwatch
from egg.evaluator.transport import exchange
from egg.evaluator.worker import faults
from egg.evaluator.worker.importing import import_candidate
from egg.evaluator.worker.launches import MOST_DESCRIBED, JitLaunches, Watched

TRACE = "trace.json"
WARM_CALLS = 10
"""At most; three at least. A call that launches what the one before it launched is warm."""
CALLS = 5
MOST_LAUNCHES = 4096
"""Launches of one call that are listed in order."""


@dataclass(frozen=True)
class Job:
    """What to run, as the job file says it."""

    task: Task
    candidate: str | None
    precision: Precision
    device: str
    target: dict[str, Any] | None
    kernel: str
    """Whose code is asked for."""

    @classmethod
    def read(cls, folder: Path) -> Job:
        data = json.loads((folder / reply.JOB).read_text(encoding="utf-8"))
        return cls(
            Task(data["task"]["name"], data["task"]["source"]),
            data["candidate"], Precision(data["precision"]), data["device"], data["target"],
            data.get("kernel", ""),
        )  # fmt: skip


def main(folder: Path, mode: str) -> int:
    os.chdir(folder)
    try:
        job = Job.read(folder)
        precision_scope(job.precision).__enter__()  # for the rest of this process's life
        answer = _MODES[mode](job)
    except BaseException as error:
        answer = reply.Reply(fault=_fault(error))
    (folder / reply.file_of(mode)).write_text(json.dumps(to_json(answer)), encoding="utf-8")
    return 1 if answer.fault else 0


def _fault(error: BaseException) -> reply.Fault:
    described = faults.describe(error)
    party = reply.CANDIDATE
    if isinstance(error, TaskError):
        party = reply.TASK
    elif isinstance(error, MachineError):
        party = reply.MACHINE
    return reply.Fault(described.reason, described.evidence, party)


def _times(job: Job) -> reply.Reply:
    running = Running.warm(job)
    resources, warnings = running.resources()
    spent, _ = stopwatch.time_calls(lambda _: running.call(), CALLS, running.device)
    seen, unseen = None, ""
    try:
        seen = times.typical_call(_timeline(running.call, running.device), CALLS)
    except (Garbled, RuntimeError, AssertionError, OSError) as error:
        unseen = f"PyTorch's profiler shows no timeline: {error}"
    own = running.names | {row.name for row in resources}
    kernels, sequence = _rows(seen, own) if seen else ((), ())
    return reply.Reply(
        times=reply.Times(
            kernels=kernels,
            sequence=sequence,
            span_microseconds=seen.microseconds if seen else 0.0,
            call_microseconds=sorted(spent)[len(spent) // 2] * 1e3,
            streams=len({a.stream for a in seen.activities}) if seen else 0,
            resources=resources,
            unseen=unseen[: reply.LONGEST_TEXT],
            warnings=warnings,
        )
    )


def _counters(job: Job) -> reply.Reply:
    running = Running.warm(job)
    torch.cuda.profiler.start()
    running.call()
    torch.cuda.synchronize(running.device)
    torch.cuda.profiler.stop()
    return reply.Reply()


def _compile(job: Job) -> reply.Reply:
    try:
        captured = _captured(job)
    except CaptureUnsupported as reason:
        return reply.Reply(compiled=reply.Compiled((), {}, str(reason)[: reply.LONGEST_TEXT]))
    rows = compile_all(captured, captured.target)
    return reply.Reply(compiled=reply.Compiled(rows, captured.outside_ops, ""))


def _code(job: Job) -> reply.Reply:
    try:
        captured = _captured(job)
    except CaptureUnsupported as reason:
        return reply.Reply(code=reply.Code(Listings((), None), str(reason)[: reply.LONGEST_TEXT]))
    return reply.Reply(code=reply.Code(listings(binaries(captured, captured.target), job.kernel), ""))


def _loaded(job: Job) -> reply.Reply:
    return reply.Reply(code=reply.Code(listings(Running.warm(job).watched(), job.kernel), ""))


def _captured(job: Job) -> Capture:
    """One warm call of the candidate on fake tensors, its launches compiled for the target."""
    assert job.candidate is not None
    assert job.target is not None
    target, source = GpuTarget(**job.target), job.candidate
    with Program.load(job.task) as program:
        args, kwargs = program.init_arguments()
        with FakeTensorMode(allow_non_fake_inputs=True):
            structure, forms = exchange.pack(program.inputs(0, torch.device("cpu"), job.precision))
        specs = [(tuple(t.shape), tuple(t.stride()), t.dtype) for t in forms]
    imported: list[Any] = []

    def make() -> nn.Module:
        if not imported:
            imported.append(import_candidate(source))
        torch.manual_seed(BUILD_SEED)
        module = imported[0].ModelNew(*args, **kwargs)
        return module.to(device=torch.device("cuda"), dtype=HALF_DTYPES.get(job.precision))

    def inputs() -> list[Any]:
        return exchange.unpack(structure, [torch.empty_strided(s, st, dtype=d) for s, st, d in specs])

    return capture(make, inputs, target)


@dataclass
class Running:
    """The program on its device, with inputs and weights."""

    device: torch.device
    launches: JitLaunches
    build: Callable[[], nn.Module]
    inputs: list[Any]
    module: nn.Module
    names: set[str] = field(default_factory=set)
    """Of the program's own kernels, as many as were ever launched."""

    @classmethod
    def warm(cls, job: Job) -> Running:
        """Built as the judge builds it, and called until it launches the same again and again."""
        device = torch.device(job.device)
        launches = JitLaunches()
        try:
            torch.cuda.set_device(device)
            torch.zeros(1, device=device).add_(1).item()
        except RuntimeError as error:
            raise MachineError(f"{device} cannot be used: {error}", "run `egg doctor`") from error
        program = Program.load(job.task)
        inputs = program.inputs(FORWARD_SEED, device, job.precision)
        build = _builder(job, program, device)
        running = cls(device, launches, build, inputs, build())
        torch.manual_seed(FORWARD_SEED)
        before: dict[str, int] | None = None
        for count in range(WARM_CALLS):
            launches.reset()
            running.call()
            torch.cuda.synchronize(device)
            running.names |= set(launches.counts())
            if count >= 2 and launches.counts() == before:
                break
            before = launches.counts()
        return running

    def call(self) -> Any:
        with torch.no_grad():
            return self.module(*self.inputs)

    def watched(self) -> list[Watched]:
        """Its own kernels in a warm call.

        A call that replays a CUDA graph launches none itself: then those of a new instance's
        first call, which are the same, tuning being done.
        """
        with self.launches.watching() as watched:
            self.call()
            if not watched and self.names:
                warm, self.module = self.module, self.build()
                self.call()
                torch.cuda.synchronize(self.device)
                self.module = warm
        return watched

    def resources(self) -> tuple[tuple[KernelResources, ...], tuple[str, ...]]:
        """Of its own kernels in a warm call, and warnings where some could not be read."""
        watched = self.watched()
        if len(watched) > MOST_DESCRIBED:
            warnings = (f"{len(watched) - MOST_DESCRIBED} of its kernels were not disassembled",)
        else:
            warnings = ()
        try:
            return tuple(_described(kernel) for kernel in watched[:MOST_DESCRIBED]), warnings
        except (MachineError, subprocess.SubprocessError) as error:
            return (), (f"the resources of its kernels could not be read: {error}"[: reply.LONGEST_TEXT],)


def _described(one: Watched) -> KernelResources:
    """Under the name the timeline knows it by, which a kernel may choose for itself."""
    name = str(getattr(one.kernel, "name", one.name))
    return describe_kernel(
        one.kernel, name=name, grid=one.grid, arguments=one.arguments, launches=one.launches
    )


def _builder(job: Job, program: Program, device: torch.device) -> Callable[[], nn.Module]:
    """Makes ``ModelNew``, with the reference's weights where names and shapes agree; or ``Model`` itself."""
    source = job.candidate
    if source is None:
        return lambda: program.build(BUILD_SEED, device, job.precision)
    args, kwargs = program.init_arguments()
    made = import_candidate(source).ModelNew

    def build() -> nn.Module:
        weights = program.build(BUILD_SEED, device, job.precision).state_dict()
        torch.manual_seed(BUILD_SEED)
        with torch.no_grad():
            module = made(*args, **kwargs).to(device=device, dtype=HALF_DTYPES.get(job.precision))
        own = module.state_dict()
        shared = {n: w for n, w in weights.items() if n in own and own[n].shape == w.shape}
        module.load_state_dict(shared, strict=False)
        return module

    return build


def _timeline(call: Callable[[], Any], device: torch.device) -> list[times.Activity]:
    """Calls queued one behind the other, each after a flush of L2, as the judge times them."""
    from torch.profiler import ProfilerActivity, profile

    flush = torch.empty(stopwatch.FLUSH_BYTES // 4, dtype=torch.int32, device=device)
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(CALLS):
            flush.zero_()
            call()
        torch.cuda.synchronize(device)
    profiler.export_chrome_trace(TRACE)
    try:
        with open(TRACE, encoding="utf-8", errors="replace") as file:
            return times.activities(json.load(file))
    except ValueError as error:
        raise Garbled(str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(TRACE)


def _rows(
    seen: times.Call, own: set[str]
) -> tuple[tuple[reply.TimedKernel, ...], tuple[reply.Launched, ...]]:
    """Launches of the same name together, the longest kernel first; and all of them in their order."""
    groups: dict[str, list[times.Activity]] = {}
    for activity in seen.activities:
        groups.setdefault(activity.name, []).append(activity)
    totals = {name: sum(a.microseconds for a in group) for name, group in groups.items()}
    names = sorted(groups, key=lambda name: -totals[name])
    rows = []
    for name in names:
        longest = max(groups[name], key=lambda a: a.microseconds)
        row = reply.TimedKernel(
            name, longest.kernel and name in own, len(groups[name]), totals[name],
            longest.grid, longest.block, longest.registers, longest.shared_bytes,
        )  # fmt: skip
        rows.append(row)
    index = {name: position for position, name in enumerate(names)}
    sequence = (reply.Launched(index[a.name], a.microseconds) for a in seen.activities[:MOST_LAUNCHES])
    return tuple(rows), tuple(sequence)


_MODES: Mapping[str, Callable[[Job], reply.Reply]] = {
    "times": _times,
    "counters": _counters,
    "compile": _compile,
    "code": _code,
    "loaded": _loaded,
}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
