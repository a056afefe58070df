"""The outer product mean of AlphaFold 2, bf16.

128 sequences, 256 residues, 32 hidden channels to 128 channels of pairs.
"""

import torch
from torch import nn

sequences = 128
residues = 256
channels = 256
hidden = 32
pairs = 128


class Model(nn.Module):
    def __init__(self, channels: int, hidden: int, pairs: int):
        super().__init__()
        self.layer_norm = nn.LayerNorm(channels)
        self.linear_1, self.linear_2 = nn.Linear(channels, hidden), nn.Linear(channels, hidden)
        self.linear_out = nn.Linear(hidden * hidden, pairs)
        self.to(torch.bfloat16)

    def forward(self, m: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mask = (mask > 0).to(m.dtype).unsqueeze(-1)
        m = self.layer_norm(m)
        a, b = self.linear_1(m) * mask, self.linear_2(m) * mask
        outer = torch.einsum("sic,sje->ijce", a, b)
        made = self.linear_out(outer.flatten(-2))
        norm = torch.einsum("sic,sjc->ijc", mask, mask)
        return made / (norm + 1e-3)


def get_inputs():
    m = torch.randn(sequences, residues, channels, dtype=torch.bfloat16)
    return [m, torch.randint(0, 8, (sequences, residues))]


def get_init_inputs():
    return [channels, hidden, pairs]
