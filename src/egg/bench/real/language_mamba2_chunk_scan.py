"""The chunked scan of Mamba-2-1.3B as its minimal code writes it, fp32.

64 heads of 64, 128 states, chunks of 64. Inside a chunk the decays are a lower triangular matrix; states
are passed from chunk to chunk by the same matrix of decays between chunks.
"""

import torch
from torch import nn

batch_size = 2
chunks = 16
chunk = 64
heads = 64
head_dim = 64
states = 128


def segsum(x: torch.Tensor) -> torch.Tensor:
    length = x.size(-1)
    x = x[..., None].expand(*x.shape, length)
    mask = torch.tril(torch.ones(length, length, device=x.device, dtype=torch.bool), diagonal=-1)
    sums = torch.cumsum(x.masked_fill(~mask, 0), dim=-2)
    mask = torch.tril(torch.ones(length, length, device=x.device, dtype=torch.bool), diagonal=0)
    return sums.masked_fill(~mask, -torch.inf)


class Model(nn.Module):
    def forward(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        a = -torch.nn.functional.softplus(a).permute(0, 3, 1, 2)
        sums = torch.cumsum(a, dim=-1)
        decay = torch.exp(segsum(a))
        inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, decay, x)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, torch.exp(sums[..., -1:] - sums), x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
        between = torch.exp(segsum(torch.nn.functional.pad(sums[..., -1], (1, 0))))
        states = torch.einsum("bhzc,bchpn->bzhpn", between, states)[:, :-1]
        carried = torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, torch.exp(sums))
        return (inside + carried).flatten(1, 2)


def get_inputs():
    x = torch.randn(batch_size, chunks, chunk, heads, head_dim)
    a = torch.randn(batch_size, chunks, chunk, heads)
    b, c = torch.randn(2, batch_size, chunks, chunk, states).mul(states**-0.25)
    return [x, a, b, c]


def get_init_inputs():
    return []
