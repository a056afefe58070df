"""Descriptions of kernels: instructions and work, of captured launches and of those really made."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from triton.runtime.jit import JITFunction

from egg.core.codec import from_json, to_json
from egg.core.resources import KernelResources
from egg.evaluator.gates import compile, provenance
from egg.evaluator.offline import capture, compile_all, resolve_target
from egg.evaluator.offline.capture import CompileOnce
from egg.evaluator.offline.fakedriver import Recorder, recording_launches
from egg.evaluator.offline.resources import sass_mix
from egg.evaluator.process.handle import Fault
from egg.evaluator.process.sharing import Unshared
from egg.evaluator.transport.protocol import Done, Fresh, KernelRows, Kernels, Request, Watch, reply_to
from egg.evaluator.transport.strict import Malformed, plain
from egg.evaluator.work.arguments import DescriptorArgument, TensorArgument, argument_forms, heft
from egg.evaluator.worker.launches import JitLaunches, described_launches
from egg.evaluator.worker.session import Session


@pytest.fixture(autouse=True)
def own_triton_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@triton.autotune([triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4)], key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + n[None, :] * K + (start + k)[:, None])
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


class Calls(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self._forward = forward

    def forward(self, *args: Any) -> Any:
        return self._forward(*args)


def scaled(*tensors: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(tensors[0])
    for x in tensors:
        n = x.numel()
        scale_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, n, 2.0, BLOCK=256)
    return out


def compiled(
    forward: Any, *tensors: tuple[int, ...], dtype: Any = torch.float32, target: str = "sm_90"
) -> Any:
    seen = capture(lambda: Calls(forward), lambda: [torch.ones(s, dtype=dtype) for s in tensors], target)
    return seen, compile_all(seen, target)


# without a GPU


def test_a_captured_launch_keeps_its_arguments():
    seen, _ = compiled(scaled, (4096,))
    tensor = TensorArgument(16384, 4)
    assert seen.launches[0].arguments == {"x": tensor, "out": tensor, "n": 4096, "factor": 2.0, "BLOCK": 256}


def test_a_view_says_where_in_a_sector_it_starts():
    seen, _ = compiled(lambda x: scaled(x[3:]), (4099,))
    assert seen.launches[0].arguments["x"] == TensorArgument(16384, 4, misaligned=12)


def test_the_work_of_a_binary_is_that_of_its_largest_launch():
    seen, (row,) = compiled(lambda x: scaled(x, x[:2048], x[:1024]), (4096,))
    assert row.launches == 3
    assert row.grid == (16, 1, 1)
    assert row.work.loaded_bytes == row.work.stored_bytes == 4 * 4096
    assert len({launch.key for launch in seen.launches}) == 1


def test_of_launches_with_one_grid_the_one_with_more_data_counts():
    def forward(x: torch.Tensor) -> torch.Tensor:
        scale_kernel[(4,)](x[:512], x[:512], 512, 2.0, BLOCK=256)
        scale_kernel[(4,)](x, x, 1024, 2.0, BLOCK=256)
        scale_kernel[(4,)](x[:256], x[:256], 256, 2.0, BLOCK=256)
        return x

    _, (row,) = compiled(forward, (1024,))
    assert row.work.loaded_bytes == 4 * 1024


def tuned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), device=a.device)
    matmul_kernel[lambda meta: (m // meta["BM"], n // meta["BN"])](a, b, c, m, n, k)
    return c


def test_work_and_instructions_of_an_autotuned_product():
    _, (row,) = compiled(tuned, (512, 256), (1024, 256), dtype=torch.float16)
    assert row.work.tensor_flops == {"fp16": 2 * 512 * 1024 * 256}
    assert row.work.complete
    mix = row.instructions
    assert mix.tensor_core == row.tensor_core_instructions > 0
    assert 0 < mix.warp_group <= mix.tensor_core
    assert mix.async_copies > 0
    assert mix.global_stores > 0
    assert mix.barriers > 0
    assert (mix.local, mix.atomics, mix.special) == (0, 0, 0)
    assert mix.widest_store_bits >= 64
    assert mix.total > mix.tensor_core + mix.async_copies + mix.global_stores
    assert 0 < mix.looped < mix.total
    assert mix.narrowest_copy_bits in (32, 64, 128)
    assert from_json(KernelResources, to_json(row)) == row


def test_instructions_of_another_vendor():
    _, (row,) = compiled(tuned, (512, 256), (1024, 256), dtype=torch.float16, target="gfx942")
    mix = row.instructions
    assert mix.tensor_core == row.tensor_core_instructions > 0
    assert mix.shared_loads > 0
    assert mix.global_loads > 0
    assert mix.narrowest_load_bits >= 32
    assert mix.warp_group == 0
    assert row.work.tensor_flops == {"fp16": 2 * 512 * 1024 * 256}


def test_the_mix_of_instructions_goes_by_opcode():
    opcodes = [
        "LDG.E.128.CONSTANT", "LDG.E.U16", "LD.E.64", "STG.E.64", "STG.E", "UTMASTG.2D",
        "LDGSTS.E.BYPASS.LTC128B.128", "UTMALDG.2D", "LDS.128", "LDSM.16.MT88.4", "STS.U16",
        "STSM.16", "LDL.64", "STL", "MUFU.EX2", "MUFU.RCP", "FFMA", "FADD.FTZ", "FMUL", "HFMA2.MMA",
        "HADD2.F32", "HMMA.16816.F32", "HGMMA.64x128x16.F32", "UTCHMMA", "BAR.SYNC.DEFER_BLOCKING",
        "SHFL.BFLY", "ATOMG.E.ADD", "RED.E.ADD.F32", "REDUX.SUM", "IMAD", "FSETP.GT", "ATOMS.ADD",
        "NOP", "BRA",
    ]  # fmt: skip
    mix = sass_mix(opcodes)
    assert mix.total == len(opcodes) - 1
    assert (mix.global_loads, mix.narrowest_load_bits) == (3, 16)
    assert (mix.global_stores, mix.widest_store_bits) == (3, 128)
    assert (mix.shared_loads, mix.shared_stores, mix.local, mix.async_copies) == (2, 2, 2, 2)
    assert (mix.special, mix.arithmetic, mix.atomics, mix.barriers, mix.shuffles) == (2, 5, 2, 1, 2)
    assert (mix.tensor_core, mix.warp_group) == (3, 2)


def test_forms_of_arguments():
    base = torch.empty(8, 16, dtype=torch.float16)
    descriptor = SimpleNamespace(base=base, shape=[8, 16], strides=[16, 1], block_shape=[4, 16])
    forms = argument_forms(
        {"d": descriptor, "t": (base[:, ::2], 3), "none": None, "flag": True, "name": "tf32"}
    )
    assert forms["d"] == DescriptorArgument(TensorArgument(256, 2), (8, 16), (16, 1), (4, 16))
    assert forms["t"] == (TensorArgument(254, 2), 3)
    assert (forms["none"], forms["flag"], forms["name"]) == (None, True, "tf32")
    assert heft(forms) == 256 + 254
    assert argument_forms({"empty": torch.empty(0, 4)})["empty"] == TensorArgument(0, 4)


# of launches really made


@pytest.fixture
def jit_launches(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Launches watched as on a GPU; below them a driver that records instead of launching."""
    monkeypatch.setattr(JITFunction, "run", JITFunction.run)
    target = resolve_target("sm_90")
    with recording_launches(Recorder(target, CompileOnce(target, 30, 60))):
        yield JitLaunches(Graph)


class Graph:
    """A CUDA graph as far as launches go."""

    def capture_begin(self, pool: Any = None) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...


def test_watched_launches_are_described(jit_launches: JitLaunches):
    scaled(torch.ones(999))
    with jit_launches.watching() as watched:
        scaled(torch.ones(1024), torch.ones(4096), torch.ones(2048))
    scaled(torch.ones(777))
    assert jit_launches.counts() == {"scale_kernel": 5}
    (one,) = watched
    assert (one.name, one.grid, one.launches) == ("scale_kernel", (16, 1, 1), 3)
    reply = described_launches(watched)
    assert reply_to(Kernels(), plain(reply)) == reply
    (row,) = reply.kernels
    assert (row.name, row.grid, row.launches) == ("scale_kernel", (16, 1, 1), 3)
    assert row.work is not None
    assert row.work.loaded_bytes == 4 * 4096
    assert row.instructions is not None
    assert row.instructions.global_loads > 0


def test_a_replay_counts_what_its_capture_recorded(jit_launches: JitLaunches):
    graph, other = Graph(), Graph()
    graph.capture_begin(pool=None)
    scaled(torch.ones(999), torch.ones(4096))
    graph.capture_end()
    assert jit_launches.counts() == {}
    graph.replay()
    other.replay()
    assert jit_launches.counts() == {"scale_kernel": 2}
    jit_launches.reset()
    graph.replay()
    scaled(torch.ones(999))
    assert jit_launches.counts() == {"scale_kernel": 3}


def test_skipped_kernels_are_not_watched(jit_launches: JitLaunches):
    jit_launches.skip({"scale_kernel"})
    with jit_launches.watching() as watched:
        scaled(torch.ones(1024))
    assert watched == []
    assert jit_launches.counts() == {"scale_kernel": 1}


def test_of_many_kernels_the_first_are_described(jit_launches: JitLaunches):
    with jit_launches.watching() as watched:
        scaled(torch.ones(1024))
    assert described_launches(watched, 0) == KernelRows((), 1)


def test_a_call_that_launches_nothing_itself_is_watched_from_its_beginning(jit_launches: JitLaunches):
    """As one does that replays a CUDA graph."""
    built: list[nn.Module] = []

    class Once(nn.Module):
        done = False

        def forward(self) -> None:
            if not self.done:
                scaled(torch.ones(1024))
            self.done = True

    def make() -> nn.Module:
        built.append(Once())
        return built[-1]

    session = Session()
    session._launches, session._make = jit_launches, make
    session._arguments = lambda structure, slots: []
    session.on_fresh(Fresh())
    session._call([])
    session.on_watch(Watch("", (), 0))
    reply = session.on_kernels(Kernels())
    assert [kernel.name for kernel in reply.kernels] == ["scale_kernel"]
    assert len(built) == 2


@dataclass
class Asked:
    """As much of a trial as the gate needs to ask for descriptions."""

    answer: Any
    kernels: tuple[KernelResources, ...] = ()
    warnings: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    sharing: Unshared = field(default_factory=Unshared)

    @property
    def buffers(self) -> Any:
        return SimpleNamespace(sets=[SimpleNamespace(inputs=())], make_room=lambda: None)

    @property
    def connection(self) -> Any:
        return SimpleNamespace(request=self.ask, restart=lambda: self.done.append("restart"))

    def ask(self, request: Request[Any], timeout: float) -> Any:
        if isinstance(request, Watch):
            return Done()
        assert isinstance(request, Kernels)
        if isinstance(self.answer, Fault):
            raise self.answer
        return self.answer


def test_descriptions_reach_the_trial(jit_launches: JitLaunches):
    with jit_launches.watching() as watched:
        scaled(torch.ones(1024))
    trial = Asked(replace(described_launches(watched), unread=2))
    provenance._read_kernels(trial, SimpleNamespace(structure=""))
    assert [kernel.name for kernel in trial.kernels] == ["scale_kernel"]
    assert len(trial.warnings) == 1
    assert trial.done == []


@pytest.mark.parametrize("reason", ["limits.timeout", "limits.protocol", "candidate.error"])
def test_descriptions_that_fail_leave_a_warning_and_nothing_else(reason: str):
    """The process is a new one, alive or not: what failed in the old one must not fail later on."""
    trial = Asked(Fault(reason, "no answer"))
    provenance._read_kernels(trial, SimpleNamespace(structure=""))
    assert trial.kernels == ()
    assert "no answer" in trial.warnings[0]
    assert trial.done == ["restart"]


def test_a_compiler_that_cannot_describe_leaves_a_warning_and_nothing_else():
    trial = SimpleNamespace(offline=SimpleNamespace(worker=Asked(Fault("limits.died", "gone"))), warnings=[])
    assert compile.described(trial) == ()
    assert "gone" in trial.warnings[0]


@pytest.mark.parametrize(
    "change",
    [
        {"work": {"flops": 1}},
        {"work": 3},
        {"instructions": {"total": "many"}},
        {"code": 5},
        {"registers": 1.5},
        {"registers": -1},
        {"grid": [1 << 62, 1 << 62, 1 << 62]},
        {"grid": [1] * 4},
        {"num_warps": 1 << 41},
    ],
)
def test_a_forged_description_is_refused(change: dict[str, Any], jit_launches: JitLaunches):
    with jit_launches.watching() as watched:
        scaled(torch.ones(1024))
    reply = plain(described_launches(watched))
    reply_to(Kernels(), reply)
    with pytest.raises(Malformed):
        reply_to(Kernels(), {**reply, "kernels": [{**reply["kernels"][0], **change}]})
    for amount in (-1.0, 1e300, float("inf")):
        reply["kernels"][0]["work"]["accesses"][0]["bytes"] = amount
        with pytest.raises(Malformed):
            reply_to(Kernels(), reply)
