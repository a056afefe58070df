"""Muon's update of a GPT-2 medium matrix of 1024 x 4096, bf16.

Nesterov momentum and five steps of Newton and Schulz.
"""

import torch
from torch import nn

rows = 1024
columns = 4096
steps = 5


class Model(nn.Module):
    def __init__(self, momentum: float, steps: int):
        super().__init__()
        self.momentum, self.steps = momentum, steps

    def forward(self, gradient: torch.Tensor, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        buffer = torch.lerp(buffer, gradient, 1 - self.momentum)
        update = torch.lerp(gradient, buffer, self.momentum)
        x = update.bfloat16()
        x = x / (x.norm() + 1e-7)
        for _ in range(self.steps):
            a = x @ x.T
            b = -4.7750 * a + 2.0315 * a @ a
            x = 3.4445 * x + b @ x
        return x * max(1, gradient.shape[0] / gradient.shape[1]) ** 0.5, buffer


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return [0.95, steps]
