"""The host waits for a copy that was started without blocking, and reads it.

task: times_count
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times(x, y, n, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=0.0) * count, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, count):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        there = count.to("cpu", non_blocking=True)
        torch.cuda.synchronize()
        times[(triton.cdiv(n, 1024),)](x, y, n, float(there.item()), BLOCK=1024)
        return y
