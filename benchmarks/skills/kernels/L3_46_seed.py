"""NetVLAD, first draft: the assignment's product in a kernel, what follows is PyTorch's."""

import math

import torch
import triton
import triton.language as tl
from torch.nn import functional

BM, BK = 64, 32


@triton.jit
def assign(x, clusters, out, rows, width, number, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, width, BK):
        inner = start + tl.arange(0, BK)
        known = (row[:, None] < rows) & (inner[None, :] < width)
        left = tl.load(x + row[:, None].to(tl.int64) * width + inner[None, :], mask=known, other=0.0)
        known = (inner[:, None] < width) & (column[None, :] < number)
        right = tl.load(clusters + inner[:, None] * number + column[None, :], mask=known, other=0.0)
        total += tl.dot(left, right, input_precision="tf32x3")
    known = (row[:, None] < rows) & (column[None, :] < number)
    tl.store(out + row[:, None] * number + column[None, :], total, mask=known)


class ModelNew(torch.nn.Module):
    def __init__(self, cluster_size, feature_size, ghost_clusters):
        super().__init__()
        self.feature_size, self.cluster_size = feature_size, cluster_size
        scale = 1 / math.sqrt(feature_size)
        number = cluster_size + ghost_clusters
        self.clusters = torch.nn.Parameter(scale * torch.randn(feature_size, number))
        self.batch_norm = torch.nn.BatchNorm1d(number)
        self.clusters2 = torch.nn.Parameter(scale * torch.randn(1, feature_size, cluster_size))

    def forward(self, x):
        batch, samples, width = x.shape
        rows, number = batch * samples, self.clusters.shape[1]
        chosen = torch.empty((rows, number), device=x.device, dtype=x.dtype)
        block = triton.next_power_of_2(number)
        grid = (triton.cdiv(rows, BM),)
        assign[grid](x, self.clusters, chosen, rows, width, number, BM=BM, BN=block, BK=BK)
        chosen = functional.softmax(self.batch_norm(chosen), dim=1)[:, : self.cluster_size]
        chosen = chosen.view(batch, samples, self.cluster_size)
        words = chosen.sum(dim=1, keepdim=True) * self.clusters2
        vlad = torch.matmul(chosen.transpose(1, 2), x).transpose(1, 2) - words
        return functional.normalize(functional.normalize(vlad).reshape(batch, -1))
