"""The continuous-filter convolution of SchNet, fp32.

8192 atoms, 262144 pairs, 50 Gaussians, 128 filters, cosine cutoff.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

atoms = 8192
pairs = 262144
filters = 128
gaussians = 50
cutoff = 10.0


class Model(nn.Module):
    offset: torch.Tensor

    def __init__(self, filters: int, gaussians: int, cutoff: float):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("offset", torch.linspace(0.0, cutoff, gaussians))
        self.coefficient = -0.5 / (cutoff / (gaussians - 1)) ** 2
        self.mlp = nn.Sequential(nn.Linear(gaussians, filters), nn.Softplus(), nn.Linear(filters, filters))
        self.lin1 = nn.Linear(filters, filters, bias=False)
        self.lin2 = nn.Linear(filters, filters)

    def forward(self, x: torch.Tensor, distance: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        distance = distance.abs().clamp(max=self.cutoff)
        spread = torch.exp(self.coefficient * (distance.view(-1, 1) - self.offset.view(1, -1)).pow(2))
        weight = 0.5 * (torch.cos(distance * math.pi / self.cutoff) + 1.0)
        filters = self.mlp(spread) * weight.view(-1, 1)
        src, dst = edge_index[0], edge_index[1]
        messages = self.lin1(x)[src] * filters
        summed = torch.zeros_like(x).index_add(0, dst, messages)
        return F.softplus(self.lin2(summed)) - math.log(2.0)


def get_inputs():
    distance = cutoff * torch.rand(pairs)
    return [torch.randn(atoms, filters), distance, torch.randint(0, atoms, (2, pairs))]


def get_init_inputs():
    return [filters, gaussians, cutoff]
