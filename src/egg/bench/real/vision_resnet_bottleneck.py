"""Two bottlenecks of ResNet-50's third stage in eval mode, fp16, channels last.

1024 to 256 to 1024 at 14 x 14.
"""

import torch
from torch import nn

batch_size = 64
planes = 256
size = 14
expansion = 4


class Bottleneck(nn.Module):
    def __init__(self, planes: int, expansion: int):
        super().__init__()
        self.conv1 = nn.Conv2d(planes * expansion, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * expansion)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x
        return self.relu(out)


class Model(nn.Module):
    def __init__(self, planes: int, expansion: int):
        super().__init__()
        self.blocks = nn.Sequential(Bottleneck(planes, expansion), Bottleneck(planes, expansion))
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def get_inputs():
    x = torch.randn(batch_size, planes * expansion, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [planes, expansion]
