"""Names of Triton's language by several paths, and an import guard around one that another version has.

task: cube
needs: cpu
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.core import constexpr

try:
    from triton.language.math import cube as cubed
except ImportError:
    cubed = None

try:
    from triton.language.extra import libdevice
except ImportError:
    from triton.language.extra.cuda import libdevice


@triton.jit
def cubes(x, out, n, BLOCK: constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    magnitude = libdevice.abs(v)
    tl.store(out + at, tl.math.fma(v * magnitude, magnitude, v), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        n = x.numel()
        padded = F.pad(x.reshape(-1), (0, -n % 16))
        out = torch.empty_like(x)
        cubes[(triton.cdiv(n, 1024),)](padded, out, n, BLOCK=1024)
        return out
