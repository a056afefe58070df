"""A ConvNeXt-B block of the second stage, fp16, channels last: 256 channels at 28 x 28.

Depthwise 7 x 7, layer norm over channels, a feed-forward block in channels-last form, layer scale, residual.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64
dim = 256
size = 28


class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.5 + 0.1 * torch.randn(dim))
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x
        x = self.dwconv(x).permute(0, 2, 3, 1)
        x = self.pwconv2(F.gelu(self.pwconv1(self.norm(x))))
        x = (self.gamma * x).permute(0, 3, 1, 2)
        return shortcut + x


def get_inputs():
    x = torch.randn(batch_size, dim, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [dim]
