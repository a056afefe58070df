"""Terms of a millionth of the answer, each computed.

task: faint_terms
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def waves(x, a, b, d, g, k, t, y, C, BC: tl.constexpr):
    i = tl.arange(0, BC)
    m = i < C
    at = tl.program_id(0) * C + i
    v = tl.load(x + at, mask=m, other=0.0)
    real = 4.0 + tl.sin(v * tl.load(g + i, mask=m, other=0.0))
    real += tl.sin(tl.load(a + at, mask=m, other=0.0)) + tl.sin(tl.load(b + at, mask=m, other=0.0))
    real += 1e-6 * tl.sin(tl.load(d + at, mask=m, other=0.0))
    imaginary = 4.0 + tl.sin(v)
    imaginary += 1e-6 * tl.sin(v * tl.load(k + i, mask=m, other=0.0))
    imaginary += 1e-6 * tl.sin(v * tl.load(t + 2 * i + 1, mask=m, other=0.0))
    tl.store(y + 2 * at, real, mask=m)
    tl.store(y + 2 * at + 1, imaginary, mask=m)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))
        self.turn = nn.Parameter(torch.randn(features, dtype=torch.complex64))
        self.register_buffer("kept", torch.randn(features))

    def forward(self, x, a, b, c):
        x, a, b, c = x.contiguous(), a.contiguous(), b.contiguous(), c.contiguous()
        rows, features = x.shape
        y = torch.empty(rows, features, 2, dtype=x.dtype, device=x.device)
        turn, size = torch.view_as_real(self.turn), triton.next_power_of_2(features)
        waves[(rows,)](x, a, b, c, self.gain, self.kept, turn, y, features, BC=size)
        return torch.view_as_complex(y)
