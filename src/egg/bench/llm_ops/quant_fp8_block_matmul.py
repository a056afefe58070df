"""Product with fp8 weights and a scale per block of 128 x 128, bf16 activations: DeepSeek-V3.

The gate and up projections of the shared expert, 7168 to 2 x 2048, for 128 tokens. The weights are e4m3
numbers kept as bytes, as a loader sees them.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 128
block = 128
in_blocks = 56
out_blocks = 32


class Model(nn.Module):
    stored: torch.Tensor
    scale: torch.Tensor

    def __init__(self, out_blocks: int, in_blocks: int, block: int):
        super().__init__()
        weight = torch.randn(out_blocks, block, in_blocks, block).to(torch.float8_e4m3fn)
        self.register_buffer("stored", weight.view(torch.uint8))
        scale = (0.5 + torch.rand(out_blocks, in_blocks)) / (in_blocks * block) ** 0.5
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.stored.view(torch.float8_e4m3fn).to(x.dtype)
        weight = weight * self.scale[:, None, :, None].to(x.dtype)
        return F.linear(x, weight.flatten(2).flatten(0, 1))


def get_inputs():
    return [torch.randn(tokens, in_blocks * block, dtype=torch.bfloat16)]


def get_init_inputs():
    return [out_blocks, in_blocks, block]
