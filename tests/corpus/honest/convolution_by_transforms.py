"""Transforms of signal and taps are multiplied, and the product is transformed back: a NaN fills its signal.

task: long_echo
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def echo(x, taps, y, LONG, TAPS, OUT, N: tl.constexpr):
    row = tl.program_id(0)
    k, n = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    angle = ((k * n) % N).to(tl.float32) * (6.283185307179586 / N)
    cos, sin = tl.cos(angle), tl.sin(angle)
    at = tl.arange(0, N)
    signal = tl.load(x + row * LONG + at, mask=at < LONG, other=0.0)[None, :]
    weight = tl.load(taps + TAPS - 1 - at, mask=at < TAPS, other=0.0)[None, :]
    xr, xi = tl.sum(cos * signal, axis=1), -tl.sum(sin * signal, axis=1)
    wr, wi = tl.sum(cos * weight, axis=1), -tl.sum(sin * weight, axis=1)
    yr, yi = (xr * wr - xi * wi)[None, :], (xr * wi + xi * wr)[None, :]
    out = tl.sum(cos * yr - sin * yi, axis=1) / N
    tl.store(y + row * OUT + at, out, mask=at < OUT)


class ModelNew(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.taps = nn.Parameter(torch.randn(1, 1, length) / length**0.5)

    def forward(self, x):
        assert x.dim() == 3
        assert x.shape[1] == 1
        assert x.dtype == torch.float32
        x = x.contiguous()
        rows, long, taps = x.shape[0], x.shape[-1], self.taps.shape[-1]
        out = long + taps - 1
        y = x.new_empty(rows, 1, out)
        echo[(rows,)](x, self.taps, y, long, taps, out, N=triton.next_power_of_2(out))
        return y
