"""The feature extractor of wav2vec 2.0 base, fp16.

Seven convolutions of 512 channels over raw samples, group norm in the first.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
samples = 160000
channels = 512


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        kernels, strides = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
        self.convs = nn.ModuleList(
            [
                nn.Conv1d(1 if level == 0 else channels, channels, kernel, stride, bias=False)
                for level, (kernel, stride) in enumerate(zip(kernels, strides, strict=True))
            ]
        )
        self.norm = nn.GroupNorm(channels, channels)
        self.half().eval()

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = wave.unsqueeze(1)
        for level, conv in enumerate(self.convs):
            x = conv(x)
            if level == 0:
                x = self.norm(x)
            x = F.gelu(x)
        return x.transpose(1, 2)


def get_inputs():
    return [torch.randn(batch_size, samples, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
