"""An up step of the U-Net (Ronneberger et al.) as used in nnU-Net's 2d form, eval mode, fp16.

Channels last. A transposed convolution doubles 128 x 128 maps of 128 channels, the skip connection is
concatenated, two 3 x 3 convolutions with norms follow.
"""

import torch
from torch import nn

batch_size = 8
channels = 128
size = 128


class DoubleConv(nn.Sequential):
    def __init__(self, inp: int, out: int):
        super().__init__(
            nn.Conv2d(inp, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
        self.conv = DoubleConv(channels, channels // 2)
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.float16)
    skip = torch.randn(batch_size, channels // 2, 2 * size, 2 * size, dtype=torch.float16)
    return [t.to(memory_format=torch.channels_last) for t in (x, skip)]


def get_init_inputs():
    return [channels]
