"""The two convolutions in front of the encoder of Whisper-large-v3, fp16, each with GELU.

128 mel bands to 1280 channels, three taps; the second has stride 2 and halves 3000 frames to 1500. Position
embeddings are added and the channels come last.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 8
bands = 128
frames = 1500
width = 1280


class Model(nn.Module):
    def __init__(self, bands: int, frames: int, width: int):
        super().__init__()
        self.first = nn.Conv1d(bands, width, 3, padding=1, dtype=torch.float16)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1, dtype=torch.float16)
        self.position = nn.Parameter(torch.randn(frames, width, dtype=torch.float16))

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(mel))))
        return x.transpose(1, 2) + self.position


def get_inputs():
    return [torch.randn(batch_size, bands, 2 * frames, dtype=torch.float16)]


def get_init_inputs():
    return [bands, frames, width]
