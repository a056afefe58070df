"""The token shift of RWKV-6-3B's time mixing, bf16.

Width 2560, five mixtures with low-rank weights of 32 each.
"""

import torch
from torch import nn

batch_size = 4
tokens = 1024
hidden = 2560
rank = 32


class Model(nn.Module):
    def __init__(self, hidden: int, rank: int):
        super().__init__()
        self.maa_x = nn.Parameter(torch.rand(hidden))
        self.maa = nn.Parameter(torch.rand(5, hidden))
        self.w1 = nn.Parameter(torch.randn(hidden, 5 * rank) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(5, rank, hidden) * rank**-0.5)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, tokens, hidden = x.shape
        before = torch.cat((last.unsqueeze(1), x[:, :-1]), dim=1)
        apart = before - x
        mixed = x + apart * self.maa_x
        mixed = torch.tanh(mixed @ self.w1).view(batch * tokens, 5, -1).transpose(0, 1)
        mixed = torch.bmm(mixed, self.w2).view(5, batch, tokens, hidden)
        return tuple(x + apart * (share + more) for share, more in zip(self.maa, mixed, strict=True))


def get_inputs():
    x = torch.randn(batch_size, tokens, hidden, dtype=torch.bfloat16)
    return [x, torch.randn(batch_size, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return [hidden, rank]
