"""Gate and up products of Qwen3-8B-FP8 with SwiGLU.

E4m3 weights with a scale per 128 x 128, bf16, 4096 to 12288, 64 tokens.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 64
block = 128
in_blocks = 32
out_blocks = 96


class Fp8Linear(nn.Module):
    weight: torch.Tensor
    weight_scale_inv: torch.Tensor

    def __init__(self, out_blocks: int, in_blocks: int, block: int):
        super().__init__()
        self.block = block
        weight = torch.randn(out_blocks * block, in_blocks * block).to(torch.float8_e4m3fn)
        self.register_buffer("weight", weight.view(torch.uint8))
        scale = (0.5 + torch.rand(out_blocks, in_blocks)) / (in_blocks * block) ** 0.5
        self.register_buffer("weight_scale_inv", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weight_scale_inv.repeat_interleave(self.block, 0).repeat_interleave(self.block, 1)
        weight = self.weight.view(torch.float8_e4m3fn).to(torch.float32) * scale
        return F.linear(x, weight.to(x.dtype))


class Model(nn.Module):
    def __init__(self, out_blocks: int, in_blocks: int, block: int):
        super().__init__()
        self.gate_proj = Fp8Linear(out_blocks, in_blocks, block)
        self.up_proj = Fp8Linear(out_blocks, in_blocks, block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate_proj(x)) * self.up_proj(x)


def get_inputs():
    return [torch.randn(tokens, in_blocks * block, dtype=torch.bfloat16)]


def get_init_inputs():
    return [out_blocks, in_blocks, block]
