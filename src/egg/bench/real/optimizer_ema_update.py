"""The moving average of a ViT-L/14 block's weights with its warm-up, fp32 averages of bf16 weights.

Ten tensors at once.
"""

import torch
from torch import nn

width = 1024
updates = 1000


class Model(nn.Module):
    def __init__(self, decay: float, updates: int):
        super().__init__()
        self.decay = min(decay, (1 + updates) / (10 + updates))

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        half = len(tensors) // 2
        averages, weights = tensors[:half], tensors[half:]
        return [
            average * self.decay + weight.float() * (1.0 - self.decay)
            for average, weight in zip(averages, weights, strict=True)
        ]


def get_inputs():
    shapes = [(3 * width, width), (3 * width,), (width, width), (width,), (4 * width, width), (4 * width,)]
    shapes += [(width, 4 * width), (width,), (width,), (width,)]
    averages = [torch.randn(shape) for shape in shapes]
    return [*averages, *(torch.randn(shape).bfloat16() for shape in shapes)]


def get_init_inputs():
    return [0.9999, updates]
