"""Word and position embeddings added, fp16: GPT-2 medium, 50257 words, 1024 places, width 1024."""

import torch
from torch import nn

batch_size = 32
sequence = 1024
vocabulary = 50257
width = 1024


class Model(nn.Module):
    def __init__(self, vocabulary: int, places: int, width: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, dtype=torch.float16)
        self.places = nn.Embedding(places, width, dtype=torch.float16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, sequence))]


def get_init_inputs():
    return [vocabulary, sequence, width]
