"""Photographs as CLIP ViT-L/14 takes them.

Bytes of 480 x 640 to 224 x 224 in fp16, resized, cropped, normalised.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64
height = 480
width = 640
size = 224


class Model(nn.Module):
    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = pixels.permute(0, 3, 1, 2).float() / 255.0
        height, width = x.shape[-2:]
        wide = self.size * width // height
        x = F.interpolate(x, size=(self.size, wide), mode="bilinear", align_corners=False)
        left = (wide - self.size) // 2
        x = x[..., left : left + self.size]
        return ((x - self.mean) / self.std.clamp_min(0.05)).half()


def get_inputs():
    return [torch.randint(0, 256, (batch_size, height, width, 3), dtype=torch.uint8)]


def get_init_inputs():
    return [size]
