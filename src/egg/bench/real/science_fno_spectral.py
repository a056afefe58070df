"""A layer of a Fourier neural operator (FNO-2d for Navier-Stokes), fp32.

64 channels at 128 x 128, 12 modes each way. The lowest frequencies of both corners are mixed by complex
weights, the rest is zero; a pointwise convolution runs beside.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
channels = 64
size = 128
modes = 12


class Model(nn.Module):
    def __init__(self, channels: int, modes: int, size: int):
        super().__init__()
        self.modes = min(modes, size // 2)
        shape = (channels, channels, self.modes, self.modes, 2)
        self.weights1 = nn.Parameter(torch.randn(shape) / channels)
        self.weights2 = nn.Parameter(torch.randn(shape) / channels)
        self.w = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        transformed = torch.fft.rfft2(x)
        out = torch.zeros(batch, channels, height, width // 2 + 1, dtype=transformed.dtype, device=x.device)
        m = self.modes
        first, second = torch.view_as_complex(self.weights1), torch.view_as_complex(self.weights2)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", transformed[:, :, :m, :m], first)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", transformed[:, :, -m:, :m], second)
        return F.gelu(torch.fft.irfft2(out, s=(height, width)) + self.w(x))


def get_inputs():
    return [torch.randn(batch_size, channels, size, size)]


def get_init_inputs():
    return [channels, modes, size]
