"""Boxes and scores of Faster R-CNN (ResNet-50-FPN, COCO) after its box head, fp32.

1000 proposals an image, 91 classes. Deltas are decoded against the proposals with clamped logarithms,
clipped to the image, and the scores of boxes too small are zeroed; the hundred best scores of every image
are returned sorted.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

images = 32
proposals = 1000
classes = 91
best = 100
width = 1333
height = 800


class Model(nn.Module):
    def __init__(self, width: int, height: int, best: int):
        super().__init__()
        self.width, self.height, self.best = float(width), float(height), best
        self.limit = math.log(1000.0 / 16)

    def forward(
        self, logits: torch.Tensor, deltas: torch.Tensor, corners: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        corners = corners.float()
        widths, heights = corners[..., 2] - corners[..., 0], corners[..., 3] - corners[..., 1]
        centre_x, centre_y = corners[..., 0] + 0.5 * widths, corners[..., 1] + 0.5 * heights
        deltas = deltas.unflatten(-1, (-1, 4))
        x = deltas[..., 0] / 10.0 * widths[..., None] + centre_x[..., None]
        y = deltas[..., 1] / 10.0 * heights[..., None] + centre_y[..., None]
        w = torch.exp((deltas[..., 2] / 5.0).clamp(max=self.limit)) * widths[..., None]
        h = torch.exp((deltas[..., 3] / 5.0).clamp(max=self.limit)) * heights[..., None]
        boxes = torch.stack((x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h), dim=-1)
        limits = torch.tensor([self.width, self.height, self.width, self.height], device=boxes.device)
        boxes = torch.minimum(boxes.clamp(min=0.0), limits)
        scores = F.softmax(logits, dim=-1)[..., 1:]
        boxes = boxes[..., 1:, :]
        sizes = boxes[..., 2:] - boxes[..., :2]
        scores = torch.where((sizes > 1e-2).all(dim=-1), scores, torch.zeros_like(scores))
        return boxes, scores.flatten(1).topk(self.best, dim=1).values


def get_inputs():
    low = torch.randint(0, height // 2, (images, proposals, 2))
    corners = torch.cat((low, low + torch.randint(8, height // 2, (images, proposals, 2))), dim=-1)
    logits = 2.0 * torch.randn(images, proposals, classes)
    return [logits, torch.randn(images, proposals, 4 * classes), corners]


def get_init_inputs():
    return [width, height, best]
