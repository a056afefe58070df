"""A mobile inverted bottleneck of EfficientNet-B4 with squeeze and excitation, eval mode, fp16.

Channels last. 56 channels widened six times at 48 x 48, depthwise taps of 5 x 5, SiLU; the squeeze has a
quarter of the block's input channels.
"""

import torch
from torch import nn

batch_size = 32
channels = 56
size = 48
expansion = 6


class SqueezeExcitation(nn.Module):
    def __init__(self, wide: int, squeezed: int):
        super().__init__()
        self.reduce = nn.Conv2d(wide, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, wide, 1)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.mean((2, 3), keepdim=True)
        scale = self.expand(self.act(self.reduce(scale)))
        return x * scale.sigmoid()


class Model(nn.Module):
    def __init__(self, channels: int, expansion: int):
        super().__init__()
        wide = channels * expansion
        self.conv_pw = nn.Conv2d(channels, wide, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide, eps=1e-3)
        self.conv_dw = nn.Conv2d(wide, wide, 5, padding=2, groups=wide, bias=False)
        self.bn2 = nn.BatchNorm2d(wide, eps=1e-3)
        self.se = SqueezeExcitation(wide, max(1, channels // 4))
        self.conv_pwl = nn.Conv2d(wide, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels, eps=1e-3)
        self.act = nn.SiLU(inplace=True)
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x
        x = self.act(self.bn1(self.conv_pw(x)))
        x = self.act(self.bn2(self.conv_dw(x)))
        x = self.bn3(self.conv_pwl(self.se(x)))
        return x + shortcut


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels, expansion]
