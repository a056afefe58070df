"""A single-stream block of FLUX.1-dev, bf16.

Width 3072, 24 heads of 128, attention and feed-forward side by side. One product makes queries, keys,
values and the hidden layer; queries and keys are normalised and turned by a rotary embedding of 2 x 2
matrices; one product takes both results back.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 1
tokens = 1536
heads = 24
head_dim = 128


class RMSNorm(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        rrms = torch.rsqrt(torch.mean(wide**2, dim=-1, keepdim=True) + 1e-6)
        return (wide * rrms).to(x.dtype) * self.scale


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    pairs = x.float().reshape(*x.shape[:-1], -1, 1, 2)
    return (turn[..., 0] * pairs[..., 0] + turn[..., 1] * pairs[..., 1]).reshape(x.shape).type_as(x)


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        self.dim, self.heads = heads * head_dim, heads
        self.linear1 = nn.Linear(self.dim, 7 * self.dim)
        self.linear2 = nn.Linear(5 * self.dim, self.dim)
        self.query_norm, self.key_norm = RMSNorm(head_dim), RMSNorm(head_dim)
        self.pre_norm = nn.LayerNorm(self.dim, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(self.dim, 3 * self.dim)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor, vector: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        shift, scale, gate = self.modulation(F.silu(vector))[:, None, :].chunk(3, dim=-1)
        modulated = (1 + scale) * self.pre_norm(x) + shift
        qkv, hidden = torch.split(self.linear1(modulated), [3 * self.dim, 4 * self.dim], dim=-1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        cos, sin = angles.cos(), angles.sin()
        turn = torch.stack((cos, -sin, sin, cos), dim=-1).unflatten(-1, (2, 2)).unsqueeze(1)
        q, k = rotated(self.query_norm(q).to(v.dtype), turn), rotated(self.key_norm(k).to(v.dtype), turn)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + gate * self.linear2(torch.cat((mixed, F.gelu(hidden, approximate="tanh")), 2))


def get_inputs():
    dim = heads * head_dim
    angles = torch.randn(batch_size, tokens, head_dim // 2)
    x, vector = torch.randn(batch_size, tokens, dim), torch.randn(batch_size, dim)
    return [x.bfloat16(), vector.bfloat16(), angles]


def get_init_inputs():
    return [heads, head_dim]
