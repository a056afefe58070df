"""A kernel rounds to eight bits, and hands its results over in bf16, which holds them all.

task: fewer_bits
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rounded(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + i, mask=i < n, other=0.0).to(tl.int32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    tl.store(y + i, bits.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, bits: int):
        super().__init__()
        if bits != 8:
            raise ValueError("eight bits")
        self.steps = float(2**bits)

    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        y = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
        rounded[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y.to(x.dtype)
