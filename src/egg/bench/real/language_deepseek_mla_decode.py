"""Latent attention of DeepSeek-V2-Lite at decode with its projections, bf16.

16 heads, a latent of 512, rotary 64. Keys' up-projection is absorbed into the queries and values' into the
output, so the cache is read as it is.
"""

import torch
from torch import nn

batch_size = 32
cached = 4096
hidden = 2048
heads = 16
nope = 128
rotary = 64
latent = 512


class Model(nn.Module):
    def __init__(self, hidden: int, heads: int, nope: int, rotary: int, latent: int):
        super().__init__()
        self.heads, self.nope, self.rotary, self.latent = heads, nope, rotary, latent
        self.q_proj = nn.Linear(hidden, heads * (nope + rotary), bias=False)
        self.wkv_b = nn.Parameter(torch.randn(heads, 2 * nope, latent) * latent**-0.5)
        self.o_proj = nn.Linear(heads * nope, hidden, bias=False)
        self.to(torch.bfloat16)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor, turned: torch.Tensor
    ) -> torch.Tensor:
        q = self.q_proj(x).view(x.shape[0], self.heads, self.nope + self.rotary)
        plain, q_pe = q.split([self.nope, self.rotary], dim=-1)
        even, odd = q_pe[..., 0::2], q_pe[..., 1::2]
        q_pe = torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
        absorbed = torch.einsum("bhd,hdc->bhc", plain, self.wkv_b[:, : self.nope])
        scores = torch.einsum("bhc,btc->bht", absorbed, cache) + torch.einsum("bhr,btr->bht", q_pe, turned)
        weights = (scores * (self.nope + self.rotary) ** -0.5).softmax(dim=-1, dtype=torch.float32).type_as(x)
        mixed = torch.einsum("bht,btc->bhc", weights, cache)
        mixed = torch.einsum("bhc,hdc->bhd", mixed, self.wkv_b[:, self.nope :])
        return self.o_proj(mixed.flatten(1))


def get_inputs():
    angles = 6.0 * torch.rand(batch_size, 1, rotary // 2)
    cache, turned = torch.randn(batch_size, cached, latent), torch.randn(batch_size, cached, rotary)
    x = torch.randn(batch_size, hidden)
    return [t.bfloat16() for t in (x, angles.cos(), angles.sin(), cache, turned)]


def get_init_inputs():
    return [hidden, heads, nope, rotary, latent]
