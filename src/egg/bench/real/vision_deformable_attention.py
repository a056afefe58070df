"""Multi-scale deformable attention of Deformable DETR (R50), fp32.

300 queries, 8 heads, 4 levels, 4 points. Offsets and weights are projected from the queries; every level's
values are sampled bilinearly at the points and summed with softmaxed weights.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
queries = 300
side = 64
heads = 8
head_dim = 32
levels = 4
points = 4


class Model(nn.Module):
    def __init__(self, side: int, heads: int, head_dim: int, levels: int, points: int):
        super().__init__()
        dim = heads * head_dim
        self.sides = [max(1, side >> level) for level in range(levels)]
        self.heads, self.levels, self.points = heads, levels, points
        self.offsets = nn.Linear(dim, heads * levels * points * 2)
        self.weights = nn.Linear(dim, heads * levels * points)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, query: torch.Tensor, reference: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        batch, queries, dim = query.shape
        value = self.value(flat).view(batch, -1, self.heads, dim // self.heads)
        offsets = self.offsets(query).view(batch, queries, self.heads, self.levels, self.points, 2)
        weights = self.weights(query).view(batch, queries, self.heads, self.levels * self.points).softmax(-1)
        sides = torch.tensor(self.sides, device=query.device, dtype=query.dtype)
        places = torch.sigmoid(reference)[:, :, None, None, None, :] + offsets / sides[:, None, None]
        grids = 2.0 * places - 1.0
        sampled = []
        for level, value_of in enumerate(value.split([side * side for side in self.sides], dim=1)):
            side = self.sides[level]
            image = value_of.flatten(2).transpose(1, 2).reshape(batch * self.heads, -1, side, side)
            grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
            sampled.append(
                F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
            )
        weights = weights.transpose(1, 2).reshape(batch * self.heads, 1, queries, self.levels * self.points)
        mixed = (torch.stack(sampled, dim=-2).flatten(-2) * weights).sum(-1).view(batch, dim, queries)
        return self.out(mixed.transpose(1, 2))


def get_inputs():
    tokens = sum(max(1, side >> level) ** 2 for level in range(levels))
    dim = heads * head_dim
    query, reference = torch.randn(batch_size, queries, dim), torch.randn(batch_size, queries, 2)
    return [query, reference, torch.randn(batch_size, tokens, dim)]


def get_init_inputs():
    return [side, heads, head_dim, levels, points]
