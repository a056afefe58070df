"""NeRF's fine network in small and its volume rendering, fp32.

2048 rays of 64 samples, ten frequencies, width 128. Points are encoded by sines and cosines, three layers
give colour and density, and what light is left after each sample is a running product.
"""

import torch
import torch.nn.functional as F
from torch import nn

rays = 2048
samples = 64
frequencies = 10
width = 128


class Model(nn.Module):
    bands: torch.Tensor

    def __init__(self, frequencies: int, width: int):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(frequencies))
        inp = 3 + 6 * frequencies
        self.net = nn.Sequential(
            nn.Linear(inp, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, origin: torch.Tensor, direction: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
        depths = depths.abs().cumsum(dim=-1) * 0.05
        points = (
            torch.tanh(origin)[:, None]
            + F.normalize(direction, dim=-1)[:, None] * torch.tanh(depths)[..., None]
        )
        angles = (points[..., None] * self.bands).flatten(-2)
        encoded = torch.cat([points, torch.sin(angles), torch.cos(angles)], dim=-1)
        raw = self.net(encoded)
        colour, density = torch.sigmoid(raw[..., :3]), F.relu(raw[..., 3])
        apart = depths[:, 1:] - depths[:, :-1]
        apart = torch.cat([apart, torch.full_like(apart[:, :1], 1.0)], dim=-1)
        alpha = 1.0 - torch.exp(-density * apart)
        left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)
        weights = alpha * left[:, :-1]
        seen = (weights[..., None] * colour).sum(dim=-2)
        depth, total = (weights * depths).sum(dim=-1, keepdim=True), weights.sum(dim=-1, keepdim=True)
        return torch.cat([seen + (1.0 - total), depth, total], dim=-1)


def get_inputs():
    origin, direction = torch.randn(2, rays, 3)
    return [origin, direction, torch.randn(rays, samples)]


def get_init_inputs():
    return [frequencies, width]
