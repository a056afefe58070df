"""Many small kernels replayed as one CUDA graph that copies its inputs in and its result out on every call.

The graph's nodes hold addresses, not values: the input is copied into the address that was recorded, the
result is cloned out of it, and a new graph is recorded whenever a shape, a dtype or the place of a weight
changes. Weights are read where they lie at each replay, so new values in them count. Where no graph can
be recorded (no CUDA device) the same launches are made one by one.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def blend(x_ptr, scale_ptr, shift_ptr, out_ptr, size, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    column = at % columns
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + column, mask=mask, other=0.0)
    shift = tl.load(shift_ptr + column, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=mask)


class Model(nn.Module):
    def __init__(self, features: int, depth: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.randn(features) for _ in range(depth))
        self.shifts = nn.ParameterList(torch.randn(features) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for scale, shift in zip(self.scales, self.shifts, strict=True):
            x = torch.relu(x * scale + shift)
        return x


class ModelNew(nn.Module):
    def __init__(self, features: int, depth: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.randn(features) for _ in range(depth))
        self.shifts = nn.ParameterList(torch.randn(features) for _ in range(depth))
        self.graph = None
        self.recorded_for = None
        self.fixed_input = None
        self.fixed_output = None

    def launches(self, x: torch.Tensor) -> torch.Tensor:
        size, columns = x.numel(), x.shape[-1]
        for scale, shift in zip(self.scales, self.shifts, strict=True):
            out = torch.empty_like(x)
            blend[(triton.cdiv(size, BLOCK),)](x, scale, shift, out, size, columns, BLOCK=BLOCK, num_warps=4)
            x = out
        return x

    def record(self, x: torch.Tensor) -> None:
        self.fixed_input = torch.empty_like(x)
        self.fixed_input.copy_(x)
        self.launches(self.fixed_input)  # compiles every kernel: nothing may be compiled while recording
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.fixed_output = self.launches(self.fixed_input)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        if not torch.cuda.is_available():
            return self.launches(x)
        places = tuple(p.data_ptr() for p in self.parameters())
        wanted = (x.shape, x.dtype, x.device, places)
        if self.recorded_for != wanted:
            self.record(x)
            self.recorded_for = wanted
        self.fixed_input.copy_(x)
        self.graph.replay()
        return self.fixed_output.clone()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(11, 77)]


def get_init_inputs() -> list[int]:
    return [77, 6]
