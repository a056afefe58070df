"""Gradients scaled to a joint norm of at most one, fp32: the four projections of an attention of Llama-3-8B.

One norm over tensors of 4096 x 4096 and 1024 x 4096: all of them are read before any can be written.
"""

import torch
from torch import nn

hidden = 4096
kv_width = 1024
limit = 1.0


class Model(nn.Module):
    def __init__(self, limit: float):
        super().__init__()
        self.limit = limit

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        gradients = (query, key, value, out)
        norm = torch.sqrt(sum((g.square().sum() for g in gradients), start=torch.zeros_like(query[0, 0])))
        scale = (self.limit / (norm + 1e-6)).clamp_max(1.0)
        return (norm, *(g * scale for g in gradients))


def get_inputs():
    shapes = [(hidden, hidden), (kv_width, hidden), (kv_width, hidden), (hidden, hidden)]
    return [torch.randn(shape) for shape in shapes]


def get_init_inputs():
    return [limit]
