"""Attention pooling of the Deep Interest Network (DIN), fp32.

Histories of 100 items of width 64, hidden layers of 80 and 40. Every item of the history meets the
candidate through a small network; masked scores weight the sum.
"""

import torch
from torch import nn

batch_size = 1024
history = 100
dim = 64
hidden = 80


class Model(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        half = max(1, hidden // 2)
        self.att = nn.Sequential(
            nn.Linear(4 * dim, hidden),
            nn.Sigmoid(),
            nn.Linear(hidden, half),
            nn.Sigmoid(),
            nn.Linear(half, 1),
        )

    def forward(self, query: torch.Tensor, keys: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        count = keys.shape[1]
        queries = query.unsqueeze(1).expand(-1, count, -1)
        joined = torch.cat([queries, keys, queries - keys, queries * keys], dim=-1)
        scores = self.att(joined).transpose(1, 2)
        mask = torch.arange(count, device=keys.device)[None, :] < lengths[:, None]
        scores = torch.where(mask.unsqueeze(1), scores, torch.zeros_like(scores))
        return torch.matmul(scores, keys).squeeze(1)


def get_inputs():
    query, keys = torch.randn(batch_size, dim), torch.randn(batch_size, history, dim)
    return [query, keys, torch.randint(history // 2, history + 1, (batch_size,))]


def get_init_inputs():
    return [dim, hidden]
