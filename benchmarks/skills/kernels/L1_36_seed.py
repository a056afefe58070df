"""RMS norm over channels, first draft: 128 places per program, their channels read twice."""

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def rms_norm(x, y, channels, plane, eps, BLOCK: tl.constexpr):
    image = tl.program_id(0).to(tl.int64) * channels * plane
    where = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = where < plane
    squares = tl.zeros((BLOCK,), tl.float32)
    for channel in range(channels):
        values = tl.load(x + image + channel * plane + where, mask=inside, other=0.0)
        squares += values * values
    root = tl.sqrt(squares / channels + eps)
    for channel in range(channels):
        values = tl.load(x + image + channel * plane + where, mask=inside, other=0.0)
        tl.store(y + image + channel * plane + where, values / root, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        batch, channels = x.shape[:2]
        plane = x.numel() // (batch * channels)
        out = torch.empty_like(x)
        rms_norm[(batch, triton.cdiv(plane, BLOCK))](x, out, channels, plane, self.eps, BLOCK=BLOCK)
        return out
