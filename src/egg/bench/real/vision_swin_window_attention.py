"""Shifted-window attention of Swin-B's second stage, fp16.

256 channels at 28 x 28, windows of 7 x 7, 8 heads. The image is rolled by half a window, cut into windows,
attended to with a relative position bias and a mask between regions that were apart before the roll, and
put together again.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 32
windows = 4
window = 7
heads = 8
head_dim = 32


class Model(nn.Module):
    index: torch.Tensor
    mask: torch.Tensor

    def __init__(self, windows: int, window: int, heads: int, head_dim: int):
        super().__init__()
        dim, self.window, self.heads, self.shift = heads * head_dim, window, heads, window // 2
        self.qkv = nn.Linear(dim, 3 * dim, dtype=torch.float16)
        self.proj = nn.Linear(dim, dim, dtype=torch.float16)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads, dtype=torch.float16))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])
        size = windows * window
        region = torch.zeros(size)
        region[-window:] = 1
        region[-self.shift :] = 2
        regions = self.cut((region[:, None] * 3 + region[None, :]).view(1, size, size, 1)).squeeze(-1)
        mask = torch.where(regions[:, None, :] == regions[:, :, None], 0.0, -100.0)
        self.register_buffer("mask", mask.half())

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, dim = x.shape
        x = x.view(batch, height // self.window, self.window, width // self.window, self.window, dim)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window * self.window, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, dim = x.shape
        pieces = self.cut(torch.roll(x, (-self.shift, -self.shift), (1, 2)))
        q, k, v = self.qkv(pieces).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        places = self.window * self.window
        bias = self.table[self.index.view(-1)].view(places, places, -1).permute(2, 0, 1)
        scores = (scores + bias).view(batch, -1, self.heads, places, places) + self.mask[:, None]
        weights = F.softmax(scores.view(-1, self.heads, places, places), dim=-1)
        mixed = self.proj((weights @ v).transpose(1, 2).reshape(-1, places, dim))
        mixed = mixed.view(batch, height // self.window, width // self.window, self.window, self.window, dim)
        mixed = mixed.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, dim)
        return torch.roll(mixed, (self.shift, self.shift), (1, 2))


def get_inputs():
    size = windows * window
    return [torch.randn(batch_size, size, size, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [windows, window, heads, head_dim]
