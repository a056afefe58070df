"""Causal depthwise convolution and SiLU in bf16: Mamba-2.8B, 5120 channels, 4 taps, 2048 tokens."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
channels = 5120
sequence = 2048
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int, taps: int):
        super().__init__()
        self.conv = nn.Conv1d(
            channels, channels, taps, groups=channels, padding=taps - 1, dtype=torch.bfloat16
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.conv(x)[..., : x.shape[-1]])


def get_inputs():
    return [torch.randn(batch_size, channels, sequence, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, taps]
