"""One decode step of a Mamba-2.8B layer's core, bf16 with fp32 states.

5120 channels, 16 states, 64 sequences. The last inputs of the causal convolution move on by one, the states
decay and take in the new token, and the gated output reads them.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64
channels = 5120
states = 16
rank = 160
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int, states: int, rank: int, taps: int):
        super().__init__()
        self.sizes = [rank, states, states]
        self.weight = nn.Parameter(torch.randn(channels, taps) * 0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)
        self.x_proj = nn.Linear(channels, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, channels)
        self.to(torch.bfloat16)
        self.log_rate = nn.Parameter(torch.rand(channels, states))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(
        self, packed: torch.Tensor, window: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, z = packed.chunk(2, dim=-1)
        window = torch.cat((window[:, :, 1:], x.unsqueeze(-1)), dim=-1)
        x = F.silu(torch.sum(window * self.weight, dim=-1) + self.bias)
        step, b, c = self.x_proj(x).split(self.sizes, dim=-1)
        step = F.softplus(self.dt_proj(step).float())
        decay = torch.exp(torch.einsum("bd,dn->bdn", step, -torch.exp(self.log_rate)))
        state = state * decay + x.unsqueeze(-1).float() * torch.einsum("bd,bn->bdn", step, b.float())
        y = torch.einsum("bdn,bn->bd", state, c.float()) + self.skip * x.float()
        return (y * F.silu(z.float())).to(packed.dtype), window, state


def get_inputs():
    packed = torch.randn(batch_size, 2 * channels, dtype=torch.bfloat16)
    window = torch.randn(batch_size, channels, taps, dtype=torch.bfloat16)
    return [packed, window, torch.randn(batch_size, channels, states)]


def get_init_inputs():
    return [channels, states, rank, taps]
