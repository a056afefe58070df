"""Gates many rows.

task: many_gated_rows
probes: all
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate(x, gain, y, width, BLOCK: tl.constexpr):
    row, col = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x + row * width + col, mask=col < width, other=0.0).to(tl.float32)
    value = value * tl.sigmoid(value) * tl.load(gain + col, mask=col < width, other=0.0).to(tl.float32)
    tl.store(y + row * width + col, value.to(tl.bfloat16), mask=col < width)


class ModelNew(nn.Module):
    def forward(self, x, gain):
        assert x.dtype == gain.dtype == torch.bfloat16
        assert x.dim() == 2
        assert gain.dim() == 1
        x, gain = x.contiguous(), gain.contiguous()
        y = torch.empty_like(x)
        rows, width = x.shape
        gate[(rows,)](x, gain, y, width, BLOCK=triton.next_power_of_2(width))
        return y
