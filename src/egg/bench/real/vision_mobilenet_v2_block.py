"""Two inverted residuals of MobileNetV2 in eval mode, fp16, channels last.

32 channels at 28 x 28, widened to 192.
"""

import torch
from torch import nn

batch_size = 64
channels = 32
size = 28
expansion = 6
blocks = 2


def conv_bn(inp: int, out: int, kernel: int, groups: int = 1, act: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inp, out, kernel, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*layers, *([nn.ReLU6(inplace=True)] if act else []))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, expansion: int):
        super().__init__()
        wide = channels * expansion
        self.conv = nn.Sequential(
            conv_bn(channels, wide, 1),
            conv_bn(wide, wide, 3, groups=wide),
            conv_bn(wide, channels, 1, act=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x)


class Model(nn.Module):
    def __init__(self, channels: int, expansion: int, blocks: int):
        super().__init__()
        self.features = nn.Sequential(*[InvertedResidual(channels, expansion) for _ in range(blocks)])
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x)


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels, expansion, blocks]
