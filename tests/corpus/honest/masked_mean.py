"""A mean of what a mask keeps, of whatever density; nothing kept is zero.

task: masked_mean
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean(x, keep, y, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    k = tl.load(keep + r * C + c, mask=c < C, other=0).to(tl.int32)
    v = tl.load(x + r * C + c, mask=c < C, other=0.0)
    kept = tl.where(k > 0, v, v * 0.0)
    count = tl.maximum(tl.sum(k, axis=0), 1)
    tl.store(y + r, tl.sum(kept, axis=0) / count.to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x, keep):
        assert x.shape == keep.shape
        assert x.dim() == 2
        assert keep.dtype == torch.bool
        x, keep = x.contiguous(), keep.contiguous()
        rows, cols = x.shape
        y = x.new_empty(rows)
        mean[(rows,)](x, keep, y, cols, BLOCK=triton.next_power_of_2(cols))
        return y
