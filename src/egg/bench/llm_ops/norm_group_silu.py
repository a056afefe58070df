"""Group norm and SiLU of a residual block of the SDXL U-Net, fp16: 320 channels at 128 x 128, 32 groups."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
channels = 320
height = 128
width = 128
groups = 32


class Model(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-5, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.float16)]


def get_init_inputs():
    return [groups, channels]
