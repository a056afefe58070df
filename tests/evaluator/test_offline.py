"""Launch capture on fake tensors and compilation for GPUs that are not there."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.core.errors import UsageError
from egg.evaluator.offline import (
    Capture,
    CaptureUnsupported,
    CompileFailed,
    GpuTarget,
    capture,
    compile_all,
    compile_launch,
    resolve_target,
    resources,
)
from egg.evaluator.offline import compile as compiling

CUDA_ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


@pytest.fixture(autouse=True)
def own_triton_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=float("-inf"))
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + offsets, numerator / tl.sum(numerator, 0), mask=mask)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + n[None, :] * K + (start + k)[:, None])
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.autotune(
    [
        triton.Config({"BM": 256, "BN": 256, "BK": 128}, num_warps=8, num_stages=4),  # over 227 KB everywhere
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_warps=4, num_stages=2),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def tuned_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + n[None, :] * K + (start + k)[:, None])
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_kernel(x, out, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + offsets, tl.load(x + offsets) * factor)
    else:
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


@triton.jit
def descriptor_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(a.load([m, start]), b.load([n, start]).T, acc)
    c.store([m, n], acc)


@triton.jit
def small_dot_kernel(x, out):
    i = tl.arange(0, 8)
    tile = tl.load(x + i[:, None] * 8 + i[None, :])
    tl.store(out + i[:, None] * 8 + i[None, :], tl.dot(tile, tile))


@triton.jit
def helper_with_fault(value):
    return value + tl.not_an_operation(value)


@triton.jit
def calls_fault_kernel(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, helper_with_fault(tl.load(x + offsets)))


@triton.jit
def unrolled_kernel(x, out):
    value = tl.load(x)
    for i in tl.static_range(100_000):
        value = value * i + 1.0
    tl.store(out, value)


class Calls(nn.Module):
    """A model whose ``forward`` is one function."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self._forward = forward

    def forward(self, *args: Any) -> Any:
        return self._forward(*args)


def captured(
    forward: Any, *shapes: tuple[int, ...], target: str = "sm_90", dtype: Any = torch.float32
) -> Capture:
    return capture(lambda: Calls(forward), lambda: [torch.ones(s, dtype=dtype) for s in shapes], target)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=1024)
    return out


def matmul(precision: str, tile: tuple[int, int, int] = (64, 64, 32), **options: Any) -> Any:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (m, k), n = a.shape, b.shape[0]
        c = torch.empty((m, n), device=a.device)
        grid = (m // tile[0], n // tile[1])
        matmul_kernel[grid](a, b, c, m, n, k, precision, *tile, **options)
        return c

    return forward


def test_records_what_the_host_asked_for() -> None:
    seen = captured(add, (4096,), (4096,))
    (launch,) = seen.launches
    assert (launch.kernel, launch.grid, launch.count) == ("add_kernel", (4, 1, 1), 1)
    assert launch.signature == {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    assert launch.named_constexprs == {"BLOCK": 1024}
    assert launch.attrs[(0,)] == [["tt.divisibility", 16]]
    assert (launch.num_warps, launch.num_stages, launch.num_ctas) == (4, 3, 1)
    assert seen.outputs == {"shape": [4096], "dtype": "float32"}
    assert seen.outside_ops == {}


def test_misaligned_views_are_not_specialised() -> None:
    (launch,) = captured(lambda x, y: add(x[1:], y[1:]), (4097,), (4097,)).launches
    assert launch.attrs[(0,)] == []
    assert launch.attrs[(2,)] == [["tt.divisibility", 16]]


@pytest.mark.parametrize("target", [*CUDA_ARCHITECTURES, "gfx942"])
def test_a_simple_kernel_compiles_for_every_architecture(target: str) -> None:
    (row,) = compile_all(captured(add, (1 << 20,), (1 << 20,), target=target), target)
    assert row.name == "add_kernel"
    assert row.grid == (1024, 1, 1)
    assert 0 < row.registers < 64
    assert (row.spill_bytes, row.shared_bytes, row.tensor_core_instructions) == (0, 0, 0)
    assert row.widest_load_bits == 128


def test_width_of_loads_depends_on_alignment() -> None:
    aligned = captured(add, (4096,), (4096,))
    odd = captured(lambda x, y: add(x[1:], y[1:]), (4098,), (4098,))
    assert compile_all(aligned, "sm_90")[0].widest_load_bits == 128
    assert compile_all(odd, "sm_90")[0].widest_load_bits == 32


def test_softmax_reduces_through_shared_memory() -> None:
    def softmax(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out

    (row,) = compile_all(captured(softmax, (512, 1000)), "sm_90")
    assert row.grid == (512, 1, 1)
    assert row.shared_bytes > 0
    assert row.tensor_core_instructions == 0


@pytest.mark.parametrize(
    ("dtype", "precision", "on_tensor_cores"),
    [(torch.float16, "tf32", True), (torch.float32, "tf32", True), (torch.float32, "ieee", False)],
)
def test_tensor_cores_follow_the_precision(dtype: torch.dtype, precision: str, on_tensor_cores: bool) -> None:
    tile = (64, 64, 32) if on_tensor_cores else (32, 32, 16)
    (row,) = compile_all(captured(matmul(precision, tile), (256, 256), (256, 256), dtype=dtype), "sm_90")
    assert (row.tensor_core_instructions > 0) is on_tensor_cores


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "gfx942"])
def test_tensor_cores_are_seen_on_other_architectures(target: str) -> None:
    seen = captured(matmul("tf32"), (256, 256), (256, 256), dtype=torch.float16, target=target)
    assert compile_all(seen, target)[0].tensor_core_instructions > 0


def test_spills_are_counted() -> None:
    seen = captured(matmul("ieee", (32, 32, 16), num_warps=1, maxnreg=40), (64, 64), (64, 64), target="sm_80")
    (row,) = compile_all(seen, "sm_80")
    assert seen.launches[0].options["maxnreg"] == 40
    assert row.spill_bytes > 0
    assert row.registers <= 40


def test_shared_memory_over_the_limit_is_refused() -> None:
    forward = matmul("tf32", (128, 256, 64), num_warps=8, num_stages=4)
    with pytest.raises(
        CompileFailed, match=r"out of resource: shared memory, needs \d+, has 232448"
    ) as failed:
        captured(forward, (512, 512), (512, 512))
    assert failed.value.kind == "resources"


def test_the_limit_belongs_to_the_target() -> None:
    seen = captured(matmul("tf32", (64, 128, 32), num_stages=4), (512, 512), (512, 512))
    roomy, tight = resolve_target("sm_90"), GpuTarget("cuda", 90, shared_limit=64 << 10)
    assert compile_launch(seen.launches[0], roomy).shared_bytes > 64 << 10
    with pytest.raises(CompileFailed, match="has 65536"):
        compile_launch(seen.launches[0], tight)


def test_compile_errors_name_line_and_reason() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        small_dot_kernel[(1,)](x, out)
        return out

    with pytest.raises(CompileFailed) as failed:
        captured(forward, (8, 8), dtype=torch.float16)
    failure = failed.value
    assert failure.kernel == "small_dot_kernel"
    assert failure.source == "tl.store(out + i[:, None] * 8 + i[None, :], tl.dot(tile, tile))"
    assert Path(__file__).read_text().splitlines()[failure.line - 1].strip() == failure.source
    assert "16" in failure.reason
    assert len(str(failure)) < 500


def test_compile_errors_point_into_the_function_called() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        calls_fault_kernel[(1,)](x, out, BLOCK=16)
        return out

    with pytest.raises(CompileFailed) as failed:
        captured(forward, (16,))
    assert failed.value.source == "return value + tl.not_an_operation(value)"
    assert Path(__file__).read_text().splitlines()[failed.value.line - 1].strip() == failed.value.source
    assert "not_an_operation" in failed.value.reason


@triton.jit
def bad_assembly_kernel(x, out):
    value = tl.load(x)
    tl.store(out, tl.inline_asm_elementwise("bogus $0, $1;", "=r,r", [value], tl.int32, True, 1))


def test_the_assembler_is_quoted() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        bad_assembly_kernel[(1,)](x, x)
        return x

    with pytest.raises(CompileFailed, match="bogus") as failed:
        captured(forward, (16,), dtype=torch.int32)
    assert len(str(failed.value)) < 300


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"BLOCK": 16, "num_warps": 3}, "num_warps must be a power of 2"),
        ({}, r"add_kernel\(\) missing 1 required"),
    ],
)
def test_a_launch_triton_objects_to_is_refused(options: dict[str, int], reason: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        add_kernel[(1,)](x, x, x, 16, **options)
        return x

    with pytest.raises(CompileFailed, match=f"cannot be launched: {reason}"):
        captured(forward, (16,))


def test_a_grid_too_large_is_refused() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        add_kernel[(1, 70_000)](x, x, x, 16, BLOCK=16)
        return x

    with pytest.raises(CompileFailed, match="at most 65535 programs along y"):
        compile_all(captured(forward, (16,)), "sm_90")


def test_autotuning_takes_the_first_configuration_that_fits() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.empty((a.shape[0], b.shape[0]), device=a.device)
        tuned_kernel[lambda meta: (a.shape[0] // meta["BM"], b.shape[0] // meta["BN"])](
            a, b, c, a.shape[0], b.shape[0], a.shape[1]
        )
        return c

    seen = captured(forward, (512, 512), (512, 512))
    (launch,) = seen.launches
    assert launch.named_constexprs == {"BM": 64, "BN": 64, "BK": 32}
    assert launch.grid == (8, 8, 1)
    assert [first.count for first in seen.first_call_launches] == [1], (
        "trials are not launches of the candidate"
    )
    assert compile_all(seen, "sm_90")[0].num_warps == 4
    assert not tuned_kernel.cache, "nothing of the capture stays behind"


@pytest.mark.parametrize(("n", "even"), [(4096, True), (4097, False)])
def test_heuristics_are_evaluated(n: int, even: bool) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale_kernel[(triton.cdiv(n, 256),)](x, out, n, 2.0, BLOCK=256)
        return out

    (launch,) = captured(forward, (n,)).launches
    assert launch.named_constexprs["EVEN"] is even


def test_host_descriptors() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = torch.empty((a.shape[0], b.shape[0]), device=a.device)
        tiles = [TensorDescriptor.from_tensor(t, s) for t, s in ((a, [64, 32]), (b, [64, 32]), (c, [64, 64]))]
        descriptor_kernel[(a.shape[0] // 64, b.shape[0] // 64)](*tiles, a.shape[1], BM=64, BN=64, BK=32)
        return c

    seen = captured(forward, (256, 256), (256, 256), dtype=torch.float16)
    assert str(seen.launches[0].signature["a"]).startswith("tensordesc")
    (row,) = compile_all(seen, "sm_90")
    assert row.tensor_core_instructions > 0
    assert row.widest_load_bits == 128


def test_loops_are_counted_and_merged() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for step in range(32):
            add_kernel[(4 if step < 20 else 8,)](x, out, out, step, BLOCK=512)
        return out

    seen = captured(forward, (4096,))
    assert sum(launch.count for launch in seen.launches) == 32
    rows = compile_all(seen, "sm_90")
    # n is 1 once, a multiple of 16 twice (0 and 16): three binaries.
    assert sorted(row.launches for row in rows) == [1, 2, 29]
    assert max(rows, key=lambda row: row.launches).grid == (8, 1, 1)


class LinearThenAdd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        hidden = self.norm(self.linear(x)).view(-1)
        total = add(hidden, self.linear.weight.repeat(hidden.numel() // 4096, 1).view(-1))
        return total.view_as(x).half(), {"sum": total.sum()}


def test_what_is_left_outside_kernels_is_named() -> None:
    seen = capture(lambda: LinearThenAdd().cuda(), lambda: [torch.rand(128, 64, device="cuda")])
    assert [launch.kernel for launch in seen.launches] == ["add_kernel"]
    assert {"aten.addmm", "aten.native_layer_norm", "aten.sum"} <= set(seen.outside_ops)
    assert not {"aten.view", "aten.t", "aten.empty_like"} & set(seen.outside_ops)
    assert seen.outputs == [
        {"shape": [128, 64], "dtype": "float16"},
        {"sum": {"shape": [], "dtype": "float32"}},
    ]


def test_only_what_is_launched_in_the_end_is_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what a first call tries out or packs with: the disassembler takes longer than the compiler."""
    started: list[str] = []
    calls: list[int] = []
    tool = resources._tool

    def forward(x: torch.Tensor) -> torch.Tensor:
        if not calls:
            softmax_kernel[(x.shape[0],)](x, torch.empty_like(x), x.shape[1], BLOCK=64)
        calls.append(1)
        return add(x, x)

    def noted(name: str, *rest: Any) -> Any:
        started.append(name)
        return tool(name, *rest)

    monkeypatch.setattr(resources, "_tool", noted)
    seen = captured(forward, (64, 64))
    assert started == ["cuobjdump"] * 2
    (row,) = compile_all(seen, "sm_90")
    assert started.count("nvdisasm") == 1
    assert row.instructions is not None


def test_full_size_takes_no_memory() -> None:
    elements = 1 << 30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = captured(add, (elements,), (elements,))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert seen.launches[0].grid == (elements // 1024, 1, 1)
    assert seen.outputs["shape"] == [elements]
    assert grown_kib < 512 << 10


def test_host_code_sees_the_target() -> None:
    asked: dict[str, Any] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        out = add(x, x)
        end.record()
        torch.cuda.synchronize()
        asked.update(
            device=str(x.device),
            is_cuda=x.is_cuda,
            capability=torch.cuda.get_device_capability(),
            current=torch.cuda.current_device(),
            multiprocessors=torch.cuda.get_device_properties(x.device).multi_processor_count,
            elapsed=start.elapsed_time(end) > 0,
            constant=torch.tensor(7, device=x.device).item(),
        )
        return out

    captured(forward, (1024,), target="sm_80")
    assert asked == {
        "device": "cuda:0",
        "is_cuda": True,
        "capability": (8, 0),
        "current": 0,
        "multiprocessors": 108,
        "elapsed": True,
        "constant": 7,
    }
    assert torch.rand(2).device.type == "cpu"
    assert not torch.cuda.is_available()


def test_grids_may_be_sized_by_what_the_compiler_decided() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel = add_kernel.warmup(x, x, out, x.numel(), BLOCK=1024, grid=(1,))
        kernel._init_handles()
        properties = triton.runtime.driver.active.utils.get_device_properties(x.device.index)
        blocks = properties["max_num_regs"] // (kernel.n_regs * 128) if kernel.metadata.shared == 0 else 1
        add_kernel[(blocks,)](x, x, out, x.numel(), BLOCK=1024)
        return out

    seen = captured(forward, (1 << 20,))
    (row,) = compile_all(seen, "sm_90")
    assert row.grid == (65_536 // (row.registers * 128), 1, 1)


def test_hand_made_tuning_drops_what_does_not_fit() -> None:
    configs = [((128, 256, 64), 4), ((64, 64, 32), 3)]
    chosen: list[Any] = []

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for tile, stages in chosen or configs:
            try:
                out = matmul("tf32", tile, num_stages=stages, num_warps=8)(a, b)
            except triton.OutOfResources:
                continue
            chosen[:] = [(tile, stages)]
            return out
        raise AssertionError("no configuration fits")

    seen = captured(forward, (512, 512), (512, 512))
    assert seen.launches[0].named_constexprs["BM"] == 64


def test_graphs_replay_their_launches() -> None:
    state: dict[str, Any] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        if not state:
            state["x"], state["out"] = torch.empty_like(x), torch.empty_like(x)
            state["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(state["graph"]):
                for _ in range(3):
                    add_kernel[(4,)](state["x"], state["x"], state["out"], x.numel(), BLOCK=256)
        state["x"].copy_(x)
        state["graph"].replay()
        return state["out"].clone()

    seen = captured(forward, (1024,))
    assert [(launch.kernel, launch.count) for launch in seen.launches] == [("add_kernel", 3)]
    assert seen.outside_ops == {"aten.copy_": 1, "aten.clone": 1}


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x: x * 2 if x.sum().item() > 0 else x, "needs a tensor's values"),
        (lambda x: x[x > 0], "shape depends on a tensor's values"),
        (lambda x: torch.nn.functional.linear(x, torch.empty(3, 3)), "raised RuntimeError"),
    ],
)
def test_what_cannot_be_followed_is_said(forward: Any, reason: str) -> None:
    with pytest.raises(CaptureUnsupported, match=reason) as unsupported:
        captured(forward, (16,))
    assert "lambda x" in str(unsupported.value), "the author's line is quoted"


def test_a_slow_front_end_is_stopped() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        unrolled_kernel[(1,)](x, x)
        return x

    seen = capture(lambda: Calls(forward), lambda: [torch.rand(4)], compile_budget_s=0)
    start = time.monotonic()
    with pytest.raises(CompileFailed, match=r"not compiled within 0\.5 s") as failed:
        compile_launch(seen.launches[0], "sm_90", timeout_s=0.5)
    assert time.monotonic() - start < 40
    assert failed.value.kind == "timeout"


@pytest.mark.parametrize(("waiting", "longer"), [(0.1, 1.0), (3.0, 3.0), (100.0, 5.0)])
def test_on_a_busy_machine_a_compilation_may_take_longer(
    waiting: float, longer: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for a machine of one's own: fifteen seconds, of which a judge among five gets three."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * waiting, 0.0, 0.0))
    given: list[float] = []
    monkeypatch.setattr(compiling, "_time_limit", lambda s: contextlib.nullcontext(given.append(s)))
    seen = capture(lambda: Calls(add), lambda: [torch.rand(64), torch.rand(64)], compile_budget_s=0)
    compile_launch(seen.launches[0], "sm_80", timeout_s=10.0)
    assert given == [10.0 * longer]


@pytest.mark.system
def test_a_slow_assembler_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    slow, pid = tmp_path / "ptxas", tmp_path / "pid"
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\necho $$ > {pid}\nexec sleep 60\n'
    )
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(slow))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    seen = capture(lambda: Calls(add), lambda: [torch.rand(64), torch.rand(64)], compile_budget_s=0)
    with pytest.raises(CompileFailed, match=r"not compiled within 1\.5 s"):
        compile_launch(seen.launches[0], "sm_80", timeout_s=1.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.system
def test_an_outer_alarm_survives() -> None:
    seen = captured(add, (1024,), (1024,))
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        compile_launch(seen.launches[0], "sm_86")
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not rung


def test_targets_have_names() -> None:
    assert resolve_target("SM90") is resolve_target("sm_90") is resolve_target("90")
    assert resolve_target("gfx942").capability == (9, 4)
    assert resolve_target("sm_100").capability == (10, 0)
    with pytest.raises(UsageError, match="sm_12345"):
        resolve_target("sm_12345")
