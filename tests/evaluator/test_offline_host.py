"""Host code that runs on fake tensors: which launches are captured, and what it is shown of the target."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.evaluator.offline import (
    CaptureUnsupported,
    capture,
    compile_all,
)
from tests.evaluator.test_offline import add, add_kernel, captured, matmul, own_triton_cache

__all__ = ["own_triton_cache"]


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
