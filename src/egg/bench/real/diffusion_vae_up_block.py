"""An up block of the SDXL VAE's decoder, bf16, channels last.

A residual block of 256 channels at 256 x 256, doubled.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 2
channels = 256
size = 256
groups = 32


class Model(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        groups = min(groups, channels // 4)
        self.norm1 = nn.GroupNorm(groups, channels, eps=1e-6)
        self.conv1 = nn.Conv2d(channels, channels // 2, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, channels // 2, eps=1e-6)
        self.conv2 = nn.Conv2d(channels // 2, channels // 2, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, channels // 2, 1)
        self.upsample = nn.Conv2d(channels // 2, channels // 2, 3, padding=1)
        self.to(torch.bfloat16)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        x = self.shortcut(x) + hidden
        return self.upsample(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.bfloat16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels, groups]
