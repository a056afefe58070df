"""The gated delta rule inside chunks of 64 for Qwen3-Next's linear layers, fp32.

32 heads of 128, 1024 tokens. Keys of a chunk act on one another through a unit lower triangular matrix;
solving with it gives the values and keys that the state takes in.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 1
heads = 32
chunks = 16
chunk = 64
head_dim = 128


class Model(nn.Module):
    def forward(
        self, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, gate: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        k = F.normalize(k, dim=-1, eps=1e-3)
        beta = torch.sigmoid(beta)
        sums = F.logsigmoid(gate).cumsum(dim=-1)
        length = k.shape[-2]
        lower = torch.tril(torch.ones(length, length, device=k.device, dtype=torch.bool))
        decay = (sums[..., :, None] - sums[..., None, :]).masked_fill(~lower, -torch.inf).exp()
        weighted = k * beta[..., None]
        acts = (weighted @ k.transpose(-1, -2) * decay).tril(-1)
        identity = torch.eye(length, device=k.device, dtype=k.dtype)
        right = torch.cat((v * beta[..., None], weighted * sums.exp()[..., None]), dim=-1)
        solved = torch.linalg.solve_triangular(identity + acts, right, upper=False, unitriangular=True)
        values, keys = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
        return values, keys


def get_inputs():
    k, v = torch.randn(2, batch_size, heads, chunks, chunk, head_dim)
    beta, gate = torch.randn(2, batch_size, heads, chunks, chunk)
    return [k, v, beta, gate + 3.0]


def get_init_inputs():
    return []
