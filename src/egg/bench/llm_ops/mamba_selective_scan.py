"""The selective scan in fp32: Mamba-2.8B, 5120 channels with 16 states each, 1024 tokens.

Each state decays by exp(step * A) and takes in step * B * x; the output reads it through C and adds D * x.
The recurrence is computed by doubling: after round r every token knows the sum of its last 2 ** r
contributions, so ten rounds over the whole sequence replace a loop over it. A kernel may walk through the
sequence and keep the states in registers.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 1
sequence = 1024
channels = 5120
states = 16


class Model(nn.Module):
    def __init__(self, channels: int, states: int):
        super().__init__()
        rates = torch.arange(1, states + 1).float().log().expand(channels, states)
        self.log_rate = nn.Parameter(rates + 0.1 * torch.randn(channels, states))
        self.step_bias = nn.Parameter(torch.rand(channels) - 4.0)
        self.skip = nn.Parameter(1.0 + 0.1 * torch.randn(channels))

    def forward(self, x: torch.Tensor, step: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        step = F.softplus(step + self.step_bias)
        decay = torch.exp(step.unsqueeze(-1) * -self.log_rate.exp())
        state = (step * x).unsqueeze(-1) * b.unsqueeze(2)
        reach = 1
        while reach < x.shape[1]:
            state = state + decay * F.pad(state[:, :-reach], (0, 0, 0, 0, reach, 0))
            decay = decay * F.pad(decay[:, :-reach], (0, 0, 0, 0, reach, 0), value=1.0)
            reach *= 2
        return (state * c.unsqueeze(2)).sum(dim=-1) + self.skip * x


def get_inputs():
    x = torch.randn(batch_size, sequence, channels)
    step = torch.randn(batch_size, sequence, channels)
    b, c = torch.randn(2, batch_size, sequence, states)
    return [x, step, b, c]


def get_init_inputs():
    return [channels, states]
