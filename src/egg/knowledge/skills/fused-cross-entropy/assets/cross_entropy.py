"""Mean cross-entropy straight from the logits: one read of them, one number out.

A program walks its row once, every lane keeping a running maximum and a sum of exponentials; the target's
logit is one more load. Eager writes the log-probabilities and reads them back. Rows' losses are joined by a
second, tiny kernel in a fixed order, so that the scalar is the same in every run; rows with the ignored
target count for nothing, in the sum and in its divisor.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 512
NUM_WARPS = 4
IGNORE = -100


@triton.jit
def row_losses(x_ptr, target_ptr, loss_ptr, columns, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + lane
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.exp(x - base)
        top = higher
    best = tl.max(top, axis=0)
    total = tl.sum(total * tl.exp(top - best), axis=0)
    target = tl.load(target_ptr + row)
    kept = target != IGNORE
    chosen = tl.load(x_ptr + row * columns + target, mask=kept, other=0.0).to(tl.float32)
    # (best - chosen) first: both are of a logit's size, the logarithm is small.
    tl.store(loss_ptr + row, tl.where(kept, (best - chosen) + tl.log(total), 0.0))


@triton.jit
def mean_loss(loss_ptr, target_ptr, out_ptr, rows, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + row, mask=row < rows, other=0.0)
        target = tl.load(target_ptr + row, mask=row < rows, other=IGNORE)
        count += (target != IGNORE).to(tl.float32)
    tl.store(out_ptr, tl.sum(total, axis=0) / tl.sum(count, axis=0))


class Model(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(x, target, ignore_index=IGNORE)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, target = x.contiguous(), target.contiguous()
        rows, columns = x.shape
        losses = torch.empty(rows, device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=x.dtype)
        row_losses[(rows,)](x, target, losses, columns, IGNORE=IGNORE, BLOCK=BLOCK, num_warps=NUM_WARPS)
        mean_loss[(1,)](losses, target, out, rows, IGNORE=IGNORE, BLOCK=1024, num_warps=8)
        return out


def get_inputs() -> list[torch.Tensor]:
    target = torch.randint(0, 1333, (21,))
    target[4] = IGNORE
    return [4.0 * torch.randn(21, 1333), target]


def get_init_inputs() -> list[int]:
    return []
