"""A residual block of the SDXL U-Net, fp16, channels last.

640 channels at 64 x 64, time embedding of 1280. Group norm, SiLU and a convolution, twice; the projected
time embedding is added between them.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
channels = 640
embedding = 1280
size = 64
groups = 32


class Model(nn.Module):
    def __init__(self, channels: int, embedding: int, groups: int):
        super().__init__()
        groups = min(groups, channels // 4)
        self.norm1 = nn.GroupNorm(groups, channels, eps=1e-5)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time_emb_proj = nn.Linear(embedding, channels)
        self.norm2 = nn.GroupNorm(groups, channels, eps=1e-5)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.to(torch.float16)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor, temb: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time_emb_proj(F.silu(temb))[:, :, None, None]
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        return x + hidden


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last), torch.randn(batch_size, embedding, dtype=torch.float16)]


def get_init_inputs():
    return [channels, embedding, groups]
