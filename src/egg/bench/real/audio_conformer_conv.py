"""The convolution module of Conformer-L, eval mode, bf16.

Width 512, gated linear unit, 31 depthwise taps, batch norm, SiLU.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
frames = 1024
dim = 512
kernel = 31


class Model(nn.Module):
    def __init__(self, dim: int, kernel: int):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.pointwise1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.batch_norm = nn.BatchNorm1d(dim)
        self.pointwise2 = nn.Conv1d(dim, dim, 1)
        self.to(torch.bfloat16).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer_norm(x).transpose(1, 2)
        h = F.glu(self.pointwise1(h), dim=1)
        h = F.silu(self.batch_norm(self.depthwise(h)))
        return x + self.pointwise2(h).transpose(1, 2)


def get_inputs():
    return [torch.randn(batch_size, frames, dim, dtype=torch.bfloat16)]


def get_init_inputs():
    return [dim, kernel]
