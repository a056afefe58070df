"""The moving average of a ViT-L/14 block's weights with its warm-up, fp32 averages of bf16 weights.

Four matrices at once; the rate of decay follows from the number of updates.
"""

import torch
from torch import nn

width = 1024
updates = 1000.0


class Model(nn.Module):
    def __init__(self, decay: float, updates: float):
        super().__init__()
        self.decay = min(decay, (1 + updates) / (10 + updates))

    def forward(
        self,
        qkv_average: torch.Tensor,
        proj_average: torch.Tensor,
        fc1_average: torch.Tensor,
        fc2_average: torch.Tensor,
        qkv: torch.Tensor,
        proj: torch.Tensor,
        fc1: torch.Tensor,
        fc2: torch.Tensor,
    ) -> list[torch.Tensor]:
        averages, weights = [qkv_average, proj_average, fc1_average, fc2_average], [qkv, proj, fc1, fc2]
        return [
            average * self.decay + weight.float() * (1.0 - self.decay)
            for average, weight in zip(averages, weights, strict=True)
        ]


def get_inputs():
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    averages = [torch.randn(shape) for shape in shapes]
    return [*averages, *(torch.randn(shape).bfloat16() for shape in shapes)]


def get_init_inputs():
    return [0.9999, updates]
