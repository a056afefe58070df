"""The low-rank cross network of DCN-v2 as in MLPerf's recommender, bf16.

3456 features, rank 512, three layers.
"""

import torch
from torch import nn

batch_size = 8192
features = 3456
rank = 512
layers = 3


class Model(nn.Module):
    def __init__(self, features: int, rank: int, layers: int):
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(features, rank, bias=False) for _ in range(layers)])
        self.up = nn.ModuleList([nn.Linear(rank, features) for _ in range(layers)])
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x0 = x
        for down, up in zip(self.down, self.up, strict=True):
            x = x0 * up(down(x)) + x
        return x


def get_inputs():
    return [torch.randn(batch_size, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features, rank, layers]
