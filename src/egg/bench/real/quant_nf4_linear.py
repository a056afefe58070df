"""A product with QLoRA's NF4 weights, bf16.

An attention projection of Llama-2-7B, 4096 x 4096, blocks of 64. Codes look up one of sixteen levels of a
normal distribution and are scaled by their block's largest weight.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 32
block = 64
blocks_each = 64
out_features = 4096


class Model(nn.Module):
    packed: torch.Tensor
    absmax: torch.Tensor
    levels: torch.Tensor

    def __init__(self, out_features: int, blocks_each: int, block: int):
        super().__init__()
        self.shape = (out_features, blocks_each * block)
        count = out_features * blocks_each
        self.register_buffer("packed", torch.randint(0, 256, (count, block // 2), dtype=torch.uint8))
        self.register_buffer("absmax", (0.5 + torch.rand(count, 1)) * (blocks_each * block) ** -0.5)
        places = (torch.arange(16) + 0.5) / 16
        levels = torch.erfinv(2 * places - 1)
        self.register_buffer("levels", levels / levels.abs().max())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((self.packed >> 4, self.packed & 15), dim=-1).flatten(1)
        weight = self.levels[codes.int()] * self.absmax
        return F.linear(x, weight.view(self.shape).to(x.dtype))


def get_inputs():
    return [torch.randn(tokens, blocks_each * block, dtype=torch.bfloat16)]


def get_init_inputs():
    return [out_features, blocks_each, block]
