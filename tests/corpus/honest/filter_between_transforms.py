"""PyTorch's transforms, as the program has them; a kernel applies the response between, and one the tail.

task: filtered_signal
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def respond(z, response, y, count, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r = tl.load(response + (i // 2) % count, mask=i < n, other=0.0)
    tl.store(y + i, tl.load(z + i, mask=i < n, other=0.0) * r, mask=i < n)


@triton.jit
def silu(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v / (1.0 + tl.exp(-v)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.response = nn.Parameter(torch.randn(length // 2 + 1))

    def forward(self, x):
        assert x.dtype == torch.float32
        z = torch.view_as_real(torch.fft.rfft(x.contiguous())).contiguous()
        made = torch.empty_like(z)
        respond[(triton.cdiv(z.numel(), 512),)](
            z, self.response, made, self.response.numel(), z.numel(), BLOCK=512
        )
        h = torch.fft.irfft(torch.view_as_complex(made), n=x.shape[-1])
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        silu[(triton.cdiv(h.numel(), 512),)](h, y, h.numel(), BLOCK=512)
        return y
