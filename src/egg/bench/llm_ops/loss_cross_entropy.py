"""Cross-entropy over the vocabulary of Llama-3-8B, 128256 words, from bf16 logits; a loss for every token.

One target in ten is padding (-100) and has loss 0. Losses are not averaged: trainers weight them per token,
and a mean over random logits would be nearly the same number whatever is computed.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 4096
vocabulary = 128256
padding = 0.1
ignored = -100


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.float(), targets, ignore_index=ignored, reduction="none")


def get_inputs():
    targets = torch.randint(0, vocabulary, (tokens,))
    targets = torch.where(torch.rand(tokens) < padding, ignored, targets)
    return [torch.randn(tokens, vocabulary, dtype=torch.bfloat16), targets]


def get_init_inputs():
    return []
