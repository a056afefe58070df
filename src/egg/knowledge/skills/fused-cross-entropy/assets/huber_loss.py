"""A pointwise loss and its mean in one pass over both inputs: smooth L1 to a scalar.

A fixed number of programs stride over the data, each lane with its own sum; a program writes one partial and
a second kernel adds those in a fixed order. Atomics on one address would be slower and differ from run to
run. With other functions of the difference this is MSE, L1, hinge, KL or binary cross-entropy.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 528  # about four for each of an H200's 132 SMs
NUM_WARPS = 4


@triton.jit
def partial_losses(x_ptr, y_ptr, part_ptr, size, beta, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(first, size, step):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < size, other=0.0).to(tl.float32)
        apart = tl.abs(x - y)  # 0 outside, where the loss of 0 is 0
        total += tl.where(apart < beta, 0.5 * apart * apart / beta, apart - 0.5 * beta)
    tl.store(part_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def join_losses(part_ptr, out_ptr, parts, size, PARTS: tl.constexpr):
    p = tl.arange(0, PARTS)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + p, mask=p < parts, other=0.0), axis=0) / size)


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.smooth_l1_loss(x, y)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.contiguous(), y.contiguous()
        size = x.numel()
        programs = min(PROGRAMS, triton.cdiv(size, BLOCK))
        part = torch.empty(programs, device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=x.dtype)
        partial_losses[(programs,)](x, y, part, size, 1.0, BLOCK=BLOCK, num_warps=NUM_WARPS)
        join_losses[(1,)](part, out, programs, size, PARTS=triton.next_power_of_2(programs), num_warps=4)
        return out


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(77, 333), torch.randn(77, 333)]


def get_init_inputs() -> list[int]:
    return []
