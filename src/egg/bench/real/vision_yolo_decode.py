"""Decoding of YOLOv8-m's head for 8400 anchors of a 640-pixel image, fp16.

Distribution focal boxes and class scores. The three feature maps are concatenated; every side of a box is
the mean of a softmax over 16 bins, taken by a convolution with the weights 0 to 15, and is scaled by its
level's stride.
"""

import torch
from torch import nn

batch_size = 32
side = 80
classes = 80
bins = 16


class Model(nn.Module):
    points: torch.Tensor
    strides: torch.Tensor

    def __init__(self, side: int, classes: int, bins: int):
        super().__init__()
        self.classes, self.bins = classes, bins
        self.conv = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        self.conv.weight.data.copy_(torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1))
        points, strides = [], []
        for level in range(3):
            cells = max(1, side >> level)
            at = torch.arange(cells) + 0.5
            y, x = torch.meshgrid(at, at, indexing="ij")
            points.append(torch.stack((x, y), -1).view(-1, 2))
            strides.append(torch.full((cells * cells, 1), float(8 << level)))
        self.register_buffer("points", torch.cat(points).T.contiguous())
        self.register_buffer("strides", torch.cat(strides).T.contiguous())
        self.half().eval()

    def forward(self, p3: torch.Tensor, p4: torch.Tensor, p5: torch.Tensor) -> torch.Tensor:
        flat = torch.cat([p.view(p.shape[0], 4 * self.bins + self.classes, -1) for p in (p3, p4, p5)], 2)
        box, cls = flat.split((4 * self.bins, self.classes), 1)
        batch, _, anchors = box.shape
        sides = self.conv(box.view(batch, 4, self.bins, anchors).transpose(2, 1).softmax(1)).view(
            batch, 4, anchors
        )
        low, high = sides.chunk(2, 1)
        low, high = self.points - low, self.points + high
        boxes = torch.cat(((low + high) / 2, high - low), 1)
        return torch.cat((boxes * self.strides, cls.sigmoid()), 1)


def get_inputs():
    channels = 4 * bins + classes
    sides = [max(1, side >> level) for level in range(3)]
    return [torch.randn(batch_size, channels, cells, cells, dtype=torch.float16) for cells in sides]


def get_init_inputs():
    return [side, classes, bins]
