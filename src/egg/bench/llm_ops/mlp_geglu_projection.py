"""The gated projection of the transformer blocks in the SDXL U-Net, fp16: 1280 to 2 x 5120, 1024 places.

One linear layer with bias makes both halves; the second goes through the exact GELU and gates the first.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
places = 1024
channels = 1280
inner = 5120


class Model(nn.Module):
    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.projection = nn.Linear(channels, 2 * inner, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.projection(x).chunk(2, dim=-1)
        return value * F.gelu(gate)


def get_inputs():
    return [torch.randn(batch_size, places, channels, dtype=torch.float16)]


def get_init_inputs():
    return [channels, inner]
