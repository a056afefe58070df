"""DLRM of the MLPerf benchmark at smaller tables, fp32.

Eight embedding bags, bottom layers, pairwise products, top layers.
"""

import torch
from torch import nn

batch_size = 4096
tables = 8
rows = 100000
dim = 128
bag = 20
dense = 13


class Model(nn.Module):
    def __init__(self, tables: int, rows: int, dim: int, dense: int):
        super().__init__()
        self.emb = nn.ModuleList([nn.EmbeddingBag(rows, dim, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(dense, 512), nn.ReLU(), nn.Linear(512, dim), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, 1024), nn.ReLU(), nn.Linear(1024, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        x = self.bottom(x)
        bags = [emb(indices[k]) for k, emb in enumerate(self.emb)]
        joined = torch.stack([x, *bags], dim=1)
        products = torch.bmm(joined, joined.transpose(1, 2))
        count = joined.shape[1]
        low = torch.tensor([i for i in range(count) for _ in range(i)], device=x.device)
        other = torch.tensor([j for i in range(count) for j in range(i)], device=x.device)
        return self.top(torch.cat([x, products[:, low, other]], dim=1))


def get_inputs():
    return [torch.randn(batch_size, dense), torch.randint(0, rows, (tables, batch_size, bag))]


def get_init_inputs():
    return [tables, rows, dim, dense]
