"""A GATv2 layer (PyG's GATv2Conv written out), fp32.

40000 nodes, 480000 edges, 4 heads of 64, softmax over incoming edges.
"""

import torch
import torch.nn.functional as F
from torch import nn

nodes = 40000
edges = 480000
features = 128
heads = 4
width = 64


class Model(nn.Module):
    def __init__(self, features: int, heads: int, width: int):
        super().__init__()
        self.heads, self.width = heads, width
        self.lin_l = nn.Linear(features, heads * width)
        self.lin_r = nn.Linear(features, heads * width)
        self.att = nn.Parameter(torch.randn(1, heads, width) * 0.2)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        src, dst = edge_index[0], edge_index[1]
        left = self.lin_l(x).view(-1, self.heads, self.width)
        right = self.lin_r(x).view(-1, self.heads, self.width)
        score = (F.leaky_relu(left[src] + right[dst], 0.2) * self.att).sum(dim=-1)
        index = dst[:, None].expand_as(score)
        largest = score.new_full((x.shape[0], self.heads), -torch.inf).scatter_reduce(0, index, score, "amax")
        weight = torch.exp(score - largest[dst])
        total = torch.zeros_like(largest).scatter_add(0, index, weight)
        weight = weight / (total[dst] + 1e-16)
        out = torch.zeros_like(right).index_add(0, dst, left[src] * weight.unsqueeze(-1))
        return out.mean(dim=1) + self.bias


def get_inputs():
    return [torch.randn(nodes, features), torch.randint(0, nodes, (2, edges))]


def get_init_inputs():
    return [features, heads, width]
