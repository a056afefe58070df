"""Two tuned kernels whose choices do not depend on each other.

task: cube
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def turned(x, t, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(t + i // 16 * 16 + 15 - i % 16, tl.load(x + i, mask=i < n), mask=i < n)


@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def cubes(t, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(t + i // 16 * 16 + 15 - i % 16, mask=i < n)
    tl.store(y + i, v * v * v + v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        t = x.new_empty(n + 256)
        turned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, t, n)
        cubes[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](t, y, n)
        return y
