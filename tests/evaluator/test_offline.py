"""Compilation for GPUs that are not there: resources, tensor cores, limits, the words of an error."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn

from egg.core.errors import UsageError
from egg.evaluator.offline import (
    Capture,
    CompileFailed,
    GpuTarget,
    capture,
    compile_all,
    compile_launch,
    resolve_target,
    resources,
)

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


def test_targets_have_names() -> None:
    assert resolve_target("SM90") is resolve_target("sm_90") is resolve_target("90")
    assert resolve_target("gfx942").capability == (9, 4)
    assert resolve_target("sm_100").capability == (10, 0)
    with pytest.raises(UsageError, match="sm_12345"):
        resolve_target("sm_12345")
