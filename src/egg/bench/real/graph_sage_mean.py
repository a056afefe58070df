"""A GraphSAGE layer with mean aggregation on a graph of ogbn-arxiv's size, fp32.

169343 nodes, 1166243 edges, 128 to 256. Neighbours are gathered by edge, added up by node and divided by
the degree, which is counted in forward.
"""

import torch
import torch.nn.functional as F
from torch import nn

nodes = 169343
edges = 1166243
features = 128
hidden = 256


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.lin_l = nn.Linear(features, hidden)
        self.lin_r = nn.Linear(features, hidden, bias=False)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        src, dst = edge_index
        summed = torch.zeros_like(x).index_add_(0, dst, x[src])
        ones = torch.ones(dst.shape[0], device=x.device, dtype=x.dtype)
        degree = torch.zeros(x.shape[0], device=x.device, dtype=x.dtype).scatter_add_(0, dst, ones)
        mean = summed / degree.clamp(min=1).unsqueeze(-1)
        return F.relu(F.normalize(self.lin_l(mean) + self.lin_r(x), p=2.0, dim=-1))


def get_inputs():
    return [torch.randn(nodes, features), torch.randint(0, nodes, (2, edges))]


def get_init_inputs():
    return [features, hidden]
