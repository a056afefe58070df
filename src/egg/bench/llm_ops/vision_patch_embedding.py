"""Patches of an image to tokens, fp16: ViT-L/14 at 224 pixels, width 1024.

A convolution whose stride is its size, a class token in front, position embeddings added.
"""

import torch
from torch import nn

batch_size = 128
pixels = 224
patch = 14
width = 1024


class Model(nn.Module):
    def __init__(self, pixels: int, patch: int, width: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch, bias=False, dtype=torch.float16)
        self.first = nn.Parameter(0.5 * torch.randn(width, dtype=torch.float16))
        places = (pixels // patch) ** 2 + 1
        self.position = nn.Parameter(0.5 * torch.randn(places, width, dtype=torch.float16))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        first = self.first.expand(tokens.shape[0], 1, -1)
        return torch.cat((first, tokens), dim=1) + self.position


def get_inputs():
    return [torch.randn(batch_size, 3, pixels, pixels, dtype=torch.float16)]


def get_init_inputs():
    return [pixels, patch, width]
