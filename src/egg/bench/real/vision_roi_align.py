"""Pooling of 512 regions from a feature map by bilinear sampling, fp32.

The box head of Mask R-CNN, 7 x 7 bins of 2 x 2 samples. Every region becomes a grid of sample points in the
map's coordinates; samples of a bin are averaged.
"""

import torch
import torch.nn.functional as F
from torch import nn

regions = 512
channels = 256
side = 100
bins = 7
samples = 2


class Model(nn.Module):
    def __init__(self, side: int, bins: int, samples: int):
        super().__init__()
        self.side, self.bins, self.samples = side, bins, samples

    def forward(self, features: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        boxes = boxes.float() / 16.0 - 0.5
        count = self.bins * self.samples
        steps = (torch.arange(count, device=boxes.device) + 0.5) / count
        x = boxes[:, 0:1] + (boxes[:, 2:3] - boxes[:, 0:1]) * steps
        y = boxes[:, 1:2] + (boxes[:, 3:4] - boxes[:, 1:2]) * steps
        grid = torch.stack((x[:, None, :].expand(-1, count, -1), y[:, :, None].expand(-1, -1, count)), -1)
        grid = (2.0 * grid + 1.0) / self.side - 1.0
        wide = features.expand(boxes.shape[0], -1, -1, -1)
        sampled = F.grid_sample(wide, grid, mode="bilinear", padding_mode="border", align_corners=False)
        return F.avg_pool2d(sampled, self.samples)


def get_inputs():
    low = torch.randint(0, 8 * side, (regions, 2))
    boxes = torch.cat((low, low + torch.randint(16, 8 * side + 17, (regions, 2))), dim=1)
    return [torch.randn(1, channels, side, side), boxes]


def get_init_inputs():
    return [side, bins, samples]
