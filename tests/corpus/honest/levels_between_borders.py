"""Counts the borders below each number: the place that a search among borders in order finds.

task: levels_between_borders
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def between(x, borders, levels, scales, out, N, C, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < N
    v = tl.load(x + at, mask=mask, other=0.0)
    place = tl.zeros([BLOCK], tl.int32)
    for border in tl.static_range(COUNT):
        place += tl.where(tl.load(borders + border) < tl.abs(v), 1, 0)
    place = tl.where(v != v, COUNT, place)
    sign = tl.where(v > 0, 1.0, tl.where(v < 0, -1.0, 0.0))
    scale = tl.load(scales + at % C, mask=mask).to(tl.float32)
    tl.store(out + at, tl.load(levels + place) * sign * scale, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("borders", torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]))
        self.register_buffer("levels", torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]))
        self.register_buffer("scales", (torch.rand(width) + 0.5).to(torch.float8_e4m3fn))

    def forward(self, x):
        if x.dtype != torch.float32 or x.dim() != 2 or x.shape[1] != len(self.scales):
            raise ValueError("rows in fp32, as wide as there are scales, are needed")
        x = x.contiguous()
        out = torch.empty_like(x)
        between[(triton.cdiv(x.numel(), 256),)](
            x, self.borders, self.levels, self.scales, out, x.numel(), x.shape[1], COUNT=7, BLOCK=256
        )
        return out
