"""A residual block of HiFi-GAN V1's generator with weight norm, fp32.

128 channels, kernel 7, dilations 1, 3, 5.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import weight_norm

batch_size = 16
channels = 128
length = 8192
kernel = 7


class Model(nn.Module):
    def __init__(self, channels: int, kernel: int):
        super().__init__()
        self.convs1 = nn.ModuleList(
            [
                weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2))
                for d in (1, 3, 5)
            ]
        )
        self.convs2 = nn.ModuleList(
            [weight_norm(nn.Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2)) for _ in range(3)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            xt = first(F.leaky_relu(x, 0.1))
            xt = second(F.leaky_relu(xt, 0.1))
            x = xt + x
        return x


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [channels, kernel]
