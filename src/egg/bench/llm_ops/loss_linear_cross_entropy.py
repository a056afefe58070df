"""The last projection and its cross-entropy in one: Qwen2.5-0.5B in bf16, width 896, 151936 words.

The logits are 600 MB that nobody needs afterwards: a fused kernel never writes them. A loss for every token.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 2048
hidden = 896
vocabulary = 151936


class Model(nn.Module):
    def __init__(self, hidden: int, vocabulary: int):
        super().__init__()
        self.head = nn.Linear(hidden, vocabulary, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(x).float(), targets, reduction="none")


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16), torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return [hidden, vocabulary]
