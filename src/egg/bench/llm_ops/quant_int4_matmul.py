"""Product with 4-bit weights in groups of 128, fp16 activations: the up projection of Qwen2.5-7B-AWQ.

Two weights in a byte, the low half first; scale and zero point per group. 16 tokens, 3584 to 18944.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 16
groups = 28
group_size = 128
out_features = 18944


class Model(nn.Module):
    packed: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    def __init__(self, out_features: int, groups: int, group_size: int):
        super().__init__()
        packed = torch.randint(0, 256, (out_features, groups, group_size // 2), dtype=torch.uint8)
        scale = (0.5 + torch.rand(out_features, groups, 1)) / (4.6 * (groups * group_size) ** 0.5)
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale.half())
        self.register_buffer("zero", torch.randint(6, 11, (out_features, groups, 1)).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = torch.stack((self.packed & 15, self.packed >> 4), dim=-1).flatten(2)
        weight = (codes.to(x.dtype) - self.zero) * self.scale
        return F.linear(x, weight.flatten(1))


def get_inputs():
    return [torch.randn(tokens, groups * group_size, dtype=torch.float16)]


def get_init_inputs():
    return [out_features, groups, group_size]
