"""One pass: three reads and a write per element instead of eager's eight."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_gelu_residual(x_ptr, bias_ptr, residual_ptr, y_ptr, size, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < size
    v = tl.load(x_ptr + i, mask=inside, other=0.0) + tl.load(bias_ptr + i % width, mask=inside, other=0.0)
    gelu = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y_ptr + i, tl.load(residual_ptr + i, mask=inside, other=0.0) + gelu, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y = torch.empty_like(x)
        size = x.numel()
        grid = (triton.cdiv(size, 2048),)
        bias_gelu_residual[grid](x, self.bias, residual, y, size, x.shape[-1], BLOCK=2048, num_warps=8)
        return y
