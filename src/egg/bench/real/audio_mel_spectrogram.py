"""Log-mel spectrograms as Whisper computes them, fp32.

30 s of samples at 16 kHz, windows of 400, hops of 160, 80 bands.
"""

import torch
from torch import nn

batch_size = 16
samples = 480000
window = 400.0
hop = 160.0
bands = 80


class Model(nn.Module):
    hann: torch.Tensor
    filters: torch.Tensor

    def __init__(self, window: float, hop: float, bands: int):
        super().__init__()
        self.size, self.hop = int(window), int(hop)
        self.register_buffer("hann", torch.hann_window(self.size))
        bins = torch.arange(self.size // 2 + 1).float()
        centres = torch.linspace(0, self.size // 2, bands + 2)[1:-1, None]
        triangles = (1.0 - (bins - centres).abs() * bands / (self.size // 2)).clamp(min=0)
        self.register_buffer("filters", triangles + 0.01)

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        stft = torch.stft(audio, self.size, self.hop, window=self.hann, return_complex=True)
        magnitudes = stft[..., :-1].abs() ** 2
        mel = self.filters.abs() @ magnitudes
        log = torch.clamp(mel, min=1e-10).log10()
        log = torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 8.0)
        return (log + 4.0) / 4.0


def get_inputs():
    return [torch.randn(batch_size, samples)]


def get_init_inputs():
    return [window, hop, bands]
