"""The profiled process, for real: compiled for a GPU that is not there, or run on one that is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from egg.core.codec import to_json
from egg.core.errors import TaskError
from egg.core.profile import Counter, Profile, Rung
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.evaluator.profiling import profiled, reply
from egg.evaluator.profiling.ladder import Bench, CannotRun, Deadlines, place_of, profile
from egg.evaluator.profiling.times import Activity
from egg.evaluator.timing import stopwatch
from egg.evaluator.worker.canary import increment
from tests.leftovers import Sandbox

ROOT = Path(__file__).parents[2]
SOFTMAX = ROOT / "examples" / "row_softmax"
TAIL = ROOT / "benchmarks" / "judge" / "cases" / "library_gemm_tail"

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(1 << 20)]
def get_init_inputs():
    return []
"""
KERNEL = """
import os, signal, time
import torch, triton, triton.language as tl
{before}
@triton.jit
def plus(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, {value}, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {inside}
        y = torch.empty_like(x)
        plus[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)
        return y
"""


def kernel(
    *, before: str = "", inside: str = "pass", value: str = "tl.load(x + i, mask=i < n) + 1"
) -> Candidate:
    return Candidate(KERNEL.format(before=before, inside=inside, value=value), "plus")


def compiled(candidate: Candidate | None, task: str = TASK, seconds: float = 90.0) -> Profile:
    deadlines = Deadlines(compile=seconds)
    return profile(Task("plus", task), candidate, device="cpu", target="H200", deadlines=deadlines)


def test_compiled_for_a_gpu_that_is_not_there(sandbox: Sandbox) -> None:
    task, fused = Task.from_file(SOFTMAX / "row_softmax.py"), Candidate.from_file(SOFTMAX / "fused.py")
    seen = profile(task, fused, device="cpu", target="H200")
    assert seen.rung is Rung.RESOURCES
    assert (seen.gpu, seen.milliseconds, seen.launches) == ("H200", None, 1)
    assert [missed.rung for missed in seen.lowered] == [Rung.COUNTERS, Rung.TIMES]
    (rows,) = seen.kernels
    assert rows.own
    assert rows.name == "softmax_rows"
    assert rows.resources is not None
    assert rows.resources.grid[0] == 16384, "at the task's full size"
    assert rows.resources.registers > 0
    assert rows.resources.widest_load_bits == 128
    assert rows.predicted_milliseconds == pytest.approx(seen.predicted_milliseconds)
    assert Profile.from_json(seen.to_json()) == seen
    assert sandbox.settles(lambda: not sandbox.processes())
    assert sandbox.folders() == []


def test_work_left_to_a_library_is_named() -> None:
    task, tail = Task.from_file(TAIL / "task.py"), Candidate.from_file(TAIL / "kernel.py")
    seen = profile(task, tail, device="cpu", target="A100", floor_milliseconds=0.5)
    own = [k for k in seen.kernels if k.own]
    library = [k for k in seen.kernels if not k.own]
    assert seen.rung is Rung.RESOURCES
    assert len(own) == 1
    assert any("mm" in k.name for k in library)
    assert own[0].predicted_milliseconds is not None
    assert seen.predicted_milliseconds is not None
    assert seen.predicted_milliseconds > own[0].predicted_milliseconds, "the floor stands for the library"


def test_eager_pytorch_without_a_gpu_leaves_only_the_model() -> None:
    seen = compiled(None)
    assert seen.rung is Rung.MODEL
    assert [missed.rung for missed in seen.lowered] == [Rung.COUNTERS, Rung.TIMES, Rung.RESOURCES]
    assert seen.kernels == ()


def test_a_kernel_that_does_not_compile() -> None:
    with pytest.raises(CannotRun) as caught:
        compiled(kernel(value="nobody + 1"))
    assert caught.value.reason == "build.compile"
    assert "nobody" in caught.value.evidence
    assert caught.value.exit_code == 1


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> Iterator[Callable[[str], None]]:
    """A shell script in place of the profiled program: what it does, a kernel can make that program do."""

    def program(script: str) -> None:
        monkeypatch.setattr(Bench, "_command", lambda self, mode: ["/bin/sh", "-c", script])

    yield program
    assert sandbox.settles(lambda: not sandbox.processes())
    assert sandbox.folders() == []


def test_a_kernel_that_dies(instead: Callable[[str], None]) -> None:
    instead("echo farewell; kill -9 $$")
    with pytest.raises(CannotRun) as caught:
        compiled(kernel())
    assert caught.value.reason == "limits.died"
    assert "signal 9" in caught.value.evidence
    assert "farewell" in caught.value.evidence


def test_a_kernel_that_hangs(instead: Callable[[str], None]) -> None:
    instead("(setsid sleep 300 &); sleep 301")
    with pytest.raises(CannotRun) as caught:
        compiled(kernel(), seconds=1)
    assert caught.value.reason == "limits.timeout"


def test_a_kernel_that_forges_its_reply(instead: Callable[[str], None]) -> None:
    """What it says is read as strictly as possible, and is not believed if it is of another form."""
    forged = '{"fault": null, "times": null, "compiled": {"resources": [{"registers": -1}]}}'
    instead(f"echo '{forged}' > reply-compile.json")
    seen = compiled(kernel())
    assert seen.rung is Rung.MODEL
    assert "wrote garbage" in seen.lowered[2].reason


def test_a_kernel_that_answers_another_question(instead: Callable[[str], None]) -> None:
    instead(f"echo '{json.dumps(to_json(reply.Reply()))}' > reply-compile.json")
    seen = compiled(kernel())
    assert seen.rung is Rung.MODEL
    assert "no resources" in seen.lowered[2].reason


@pytest.mark.parametrize(
    ("party", "raised"), [(reply.TASK, TaskError), (reply.CANDIDATE, CannotRun), (reply.MACHINE, None)]
)
def test_whose_fault_it_is(
    instead: Callable[[str], None], party: str, raised: type[Exception] | None
) -> None:
    answer = reply.Reply(fault=reply.Fault("some.reason", "the evidence", party))
    instead(f"echo '{json.dumps(to_json(answer))}' > reply-compile.json; exit 1")
    if raised is None:
        assert "the evidence" in compiled(kernel()).lowered[2].reason
    else:
        with pytest.raises(raised, match="the evidence"):
            compiled(kernel())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., reply.Reply]:
    """The profiled program in this process: a task and a kernel file in, its reply out."""
    monkeypatch.chdir(tmp_path)

    def ask(mode: str, candidate: str, *, task: str = TASK) -> reply.Reply:
        job = {
            "task": {"name": "plus", "source": task},
            "candidate": candidate,
            "precision": "match",
            "device": "cpu",
            "target": place_of("cpu", "H200").compiler_target,
        }
        (tmp_path / reply.JOB).write_text(json.dumps(job))
        code = profiled.main(tmp_path, mode)
        answer = reply.read((tmp_path / reply.file_of(mode)).read_bytes())
        assert code == (1 if answer.fault else 0)
        return answer

    return ask


def test_a_kernel_that_needs_values_cannot_be_followed(asked: Callable[..., reply.Reply]) -> None:
    answer = asked("compile", kernel(inside="assert x.sum().item() > 0").source)
    assert answer.compiled is not None
    assert answer.compiled.unsupported
    assert answer.compiled.resources == ()


def test_a_task_that_fails_is_the_tasks_fault(asked: Callable[..., reply.Reply]) -> None:
    answer = asked("compile", kernel().source, task=TASK.replace("torch.rand(1 << 20)", "1 / 0"))
    assert answer.fault is not None
    assert (answer.fault.party, "get_inputs" in answer.fault.evidence) == (reply.TASK, True)


class Clock:
    """Stands for a device's event: every call takes half a millisecond."""

    def __init__(self, **_: object) -> None: ...
    def record(self) -> None: ...
    def elapsed_time(self, _: Clock) -> float:
        return 0.5


@pytest.fixture
def pretended(
    monkeypatch: pytest.MonkeyPatch, asked: Callable[..., reply.Reply]
) -> Callable[[str], reply.Times]:
    """The mode ``times`` in this process on a device that only seems to be one; launches do nothing."""
    source = ASTSource(increment, {"pointer": "*fp32", "size": "i32", "BLOCK": "constexpr"}, {(2,): 256})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))

    def launch(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        bound = function.signature.bind(*args, **kwargs)
        assert grid(bound.arguments) if callable(grid) else grid
        return compiled

    monkeypatch.setattr(JITFunction, "run", launch)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _=None: None)
    monkeypatch.setattr(stopwatch, "_Event", Clock)
    monkeypatch.setattr(stopwatch, "_synchronize", lambda _: None)
    monkeypatch.setattr(stopwatch, "FLUSH_BYTES", 64)

    def times(candidate: str) -> reply.Times:
        seen = asked("times", candidate).times
        assert seen is not None
        return seen

    return times


LAUNCHER = """
import torch
from egg.evaluator.worker.canary import increment
class ModelNew(torch.nn.Module):
    called = 0
    def forward(self, x):
        self.called += 1
        if self.called <= {launching}:
            increment[lambda meta: (4,)](x, 1000, BLOCK=256)
        return x + 1
"""


def timeline(*_: object) -> list[Activity]:
    """Five calls of a flush, an own kernel and one of PyTorch's."""
    names = ("fill", "increment", "void at::native::add<4>(int)")
    return [
        Activity(
            name, True, 100.0 * call + 10 * i, 5.0 + i, (10.0 * call + i, 0.0), 7, (4 * (i or 9),), (128,)
        )
        for call in range(profiled.CALLS)
        for i, name in enumerate(names)
    ]


@pytest.mark.parametrize("launching", [1000, 1], ids=["launching", "replaying"])
def test_own_kernels_are_described_and_told_from_others(
    pretended: Callable[[str], reply.Times], monkeypatch: pytest.MonkeyPatch, launching: int
) -> None:
    """Also where only the first call of an instance launches, as with a CUDA graph."""
    monkeypatch.setattr(profiled, "_timeline", timeline)
    seen = pretended(LAUNCHER.format(launching=launching))
    assert [(k.name, k.own, k.microseconds) for k in seen.kernels] == [
        ("void at::native::add<4>(int)", False, 7.0),
        ("increment", True, 6.0),
    ]
    assert [launch.kernel for launch in seen.sequence] == [1, 0]
    assert (seen.span_microseconds, seen.call_microseconds) == (17.0, 500.0)
    (row,) = seen.resources
    assert (row.name, row.grid, row.launches) == ("increment", (4, 1, 1), 1)
    assert row.work is not None


def test_where_the_profiler_sees_nothing_the_whole_is_still_timed(
    pretended: Callable[[str], reply.Times],
) -> None:
    seen = pretended(LAUNCHER.format(launching=1000))
    assert "PyTorch's profiler shows no timeline" in seen.unseen
    assert (seen.kernels, seen.call_microseconds) == ((), 500.0)
    assert [row.name for row in seen.resources] == ["increment"]


TUNED = """
import torch, triton, triton.language as tl
@triton.autotune([triton.Config({"B": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)], key=["n"])
@triton.jit
def plus(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        plus[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, y, x.numel())
        return y
"""

GRAPHED = """
class Graphed(ModelNew):
    def forward(self, x):
        if not hasattr(self, "graph"):
            self.x = x.clone()
            super().forward(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = super().forward(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()
ModelNew = Graphed
"""


@pytest.mark.gpu
def test_times_and_counters_on_a_gpu() -> None:
    task, fused = Task.from_file(SOFTMAX / "row_softmax.py"), Candidate.from_file(SOFTMAX / "fused.py")
    by_times = profile(task, fused, counters=False)
    assert by_times.rung is Rung.TIMES
    assert [(k.name, k.own, k.launches) for k in by_times.kernels] == [("softmax_rows", True, 1)]
    (rows,) = by_times.kernels
    assert rows.resources is not None
    assert rows.resources.instructions is not None
    assert rows.milliseconds is not None
    assert by_times.milliseconds is not None
    assert 0 < rows.milliseconds <= by_times.milliseconds * 1.02
    assert rows.predicted_milliseconds is not None
    seen = profile(task, fused)
    assert seen.rung is Rung.COUNTERS, seen.lowered
    counted = seen.kernels[0].counters
    assert counted[Counter.NANOSECONDS] / 1e6 == pytest.approx(rows.milliseconds, rel=0.5)
    assert counted[Counter.GRID] == 16384
    assert counted[Counter.REGISTERS] == rows.resources.registers
    least = 4 * 16384 * 1024
    assert counted[Counter.DRAM_READ_BYTES] > 0.8 * least


@pytest.mark.gpu
def test_a_stage_asks_for_less_on_a_gpu() -> None:
    task, fused = Task.from_file(SOFTMAX / "row_softmax.py"), Candidate.from_file(SOFTMAX / "fused.py")
    seen = profile(task, fused, stage=Stage.STRUCTURE)
    assert seen.rung is Rung.COUNTERS, seen.lowered
    assert Counter.DRAM_SHARE in seen.kernels[0].counters
    assert Counter.LOAD_SECTORS not in seen.kernels[0].counters


@pytest.mark.gpu
def test_a_tuned_kernel_is_the_same_under_both_tools() -> None:
    seen = profile(Task("plus", TASK), Candidate(TUNED, "tuned"))
    assert seen.rung is Rung.COUNTERS, seen.lowered
    (plus,) = seen.kernels
    assert plus.launches == 1
    assert plus.resources is not None
    assert plus.counters[Counter.GRID] == plus.resources.grid[0]
    assert plus.counters[Counter.THREADS] == 32 * plus.resources.num_warps


@pytest.mark.gpu
def test_kernels_in_a_graph_are_still_its_own() -> None:
    seen = profile(Task("plus", TASK), Candidate(TUNED + GRAPHED, "graphed"))
    own = [k for k in seen.kernels if k.own]
    assert [k.name for k in own] == ["plus"]
    assert own[0].resources is not None
    assert len(seen.kernels) > 1, "the copies in and out are seen too"


@pytest.mark.gpu
def test_eager_pytorch_on_a_gpu() -> None:
    seen = profile(Task.from_file(TAIL / "task.py"), None)
    assert seen.rung is Rung.COUNTERS, seen.lowered
    assert not any(k.own for k in seen.kernels)
    assert seen.kernels[0].counters
    assert seen.launches >= len(seen.kernels) > 1


@pytest.mark.gpu
def test_another_target_than_the_present_gpu_is_not_measured() -> None:
    seen = profile(Task("plus", TASK), kernel(), target="A100")
    assert seen.rung is Rung.RESOURCES
    assert "the target is" in seen.lowered[1].reason


@pytest.mark.gpu
def test_a_kernel_that_faults_on_a_gpu() -> None:
    with pytest.raises(CannotRun):
        profile(Task("plus", TASK), kernel(value="tl.load(x + i * 100000000) + 1"))
