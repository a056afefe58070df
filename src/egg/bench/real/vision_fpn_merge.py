"""The feature pyramid of Mask R-CNN R50-FPN, fp16, channels last.

Four levels to 256 channels, top-down sums, 3 x 3 each.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
side = 200
channels = 256
width = 256


class Model(nn.Module):
    def __init__(self, width: int, channels: int):
        super().__init__()
        self.inner = nn.ModuleList([nn.Conv2d(width << level, channels, 1) for level in range(4)])
        self.layer = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4)])
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, c2: torch.Tensor, c3: torch.Tensor, c4: torch.Tensor, c5: torch.Tensor
    ) -> list[torch.Tensor]:
        features = [c2, c3, c4, c5]
        last = self.inner[3](c5)
        results = [self.layer[3](last)]
        for level in (2, 1, 0):
            lateral = self.inner[level](features[level])
            last = lateral + F.interpolate(last, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer[level](last))
        results.append(F.max_pool2d(results[-1], 1, 2, 0))
        return results


def get_inputs():
    maps = [
        torch.randn(
            batch_size, width << level, -(-side // 2**level), -(-side // 2**level), dtype=torch.float16
        )
        for level in range(4)
    ]
    return [x.to(memory_format=torch.channels_last) for x in maps]


def get_init_inputs():
    return [width, channels]
