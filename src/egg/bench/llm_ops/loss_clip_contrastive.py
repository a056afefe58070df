"""Contrastive loss of CLIP ViT-L/14 in fp32: cosine similarity of 4096 images and texts of width 768.

Both directions, a loss for every pair, not averaged; the temperature is a learned exponent.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4096
width = 768


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(2.6593))

    def forward(self, images: torch.Tensor, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images, texts = F.normalize(images, dim=-1), F.normalize(texts, dim=-1)
        logits = self.log_scale.exp() * images @ texts.t()
        matching = logits.diagonal()
        return logits.logsumexp(dim=1) - matching, logits.logsumexp(dim=0) - matching


def get_inputs():
    images = torch.randn(batch_size, width)
    return [images, 0.3 * images + torch.randn(batch_size, width)]


def get_init_inputs():
    return []
