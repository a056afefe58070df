"""Triangle multiplication by outgoing edges of AlphaFold 2 (OpenFold), bf16.

256 residues, 128 channels of pairs and within.
"""

import torch
from torch import nn

residues = 256
channels = 128
hidden = 128


class Model(nn.Module):
    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.layer_norm_in = nn.LayerNorm(channels)
        self.linear_a_p, self.linear_a_g, self.linear_b_p, self.linear_b_g = (
            nn.Linear(channels, hidden) for _ in range(4)
        )
        self.layer_norm_out = nn.LayerNorm(hidden)
        self.linear_z = nn.Linear(hidden, channels)
        self.linear_g = nn.Linear(channels, channels)
        self.to(torch.bfloat16)

    def forward(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mask = (mask > 0).to(z.dtype).unsqueeze(-1)
        z = self.layer_norm_in(z)
        a = mask * torch.sigmoid(self.linear_a_g(z)) * self.linear_a_p(z)
        b = mask * torch.sigmoid(self.linear_b_g(z)) * self.linear_b_p(z)
        product = torch.matmul(a.permute(2, 0, 1), b.permute(2, 1, 0)).permute(1, 2, 0)
        return self.linear_z(self.layer_norm_out(product)) * torch.sigmoid(self.linear_g(z))


def get_inputs():
    z = torch.randn(residues, residues, channels, dtype=torch.bfloat16)
    return [z, torch.randint(0, 8, (residues, residues))]


def get_init_inputs():
    return [channels, hidden]
