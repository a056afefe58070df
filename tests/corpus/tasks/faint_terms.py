"""Waves of four inputs as complex numbers: by a gain, by one that is a buffer, and by a complex one."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))
        self.turn = nn.Parameter(torch.randn(features, dtype=torch.complex64))
        self.register_buffer("kept", torch.randn(features))

    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        real = 4.0 + torch.sin(x * self.gain) + torch.sin(a) + torch.sin(b) + 1e-6 * torch.sin(c)
        small = torch.sin(x * self.kept) + torch.sin(x * self.turn.imag)
        return torch.complex(real, 4.0 + torch.sin(x) + 1e-6 * small)


def get_inputs():
    return [torch.randn(16, 128) for _ in range(4)]


def get_init_inputs():
    return [128]
