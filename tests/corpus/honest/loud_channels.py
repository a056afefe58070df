"""Truth values that move, stored as bytes of zero and one.

task: loud_channels
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def passed(x, loud, y, rows, channels, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)
    held = tl.load(loud + col, mask=col < channels, other=0).to(tl.int32)
    inside = (row < rows) & (col < channels)[None, :]
    value = tl.load(x + row * channels + col[None, :], mask=inside, other=0.0)
    now = (held > 0) | (tl.max((value > 2.0).to(tl.int32), axis=0) > 0)
    gain = tl.where(now, 1.0, 0.5)
    tl.debug_barrier()
    tl.store(loud + col, now.to(tl.uint8), mask=col < channels)
    tl.store(y + row * channels + col[None, :], gain[None, :] * value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("loud", torch.zeros(channels, dtype=torch.bool))

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.dim() == 2
        assert x.shape[1] == self.loud.shape[0]
        x = x.contiguous()
        rows, channels = x.shape
        y = torch.empty_like(x)
        blocks = {"ROWS": triton.next_power_of_2(rows), "BLOCK": triton.next_power_of_2(channels)}
        passed[(1,)](x, self.loud.view(torch.uint8), y, rows, channels, **blocks)
        return y
