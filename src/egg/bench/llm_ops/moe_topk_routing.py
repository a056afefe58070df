"""Routing of tokens to experts in fp32: Qwen3-30B-A3B, 8 of 128 experts, softmax over the chosen ones.

Softmax, top-k and renormalisation over the k are the same as softmax over the k largest logits. Returned are
the sorted weights and the dense matrix of weights with zeros elsewhere, rather than indices: where two logits
are equal, PyTorch promises no order, and every expert that ties for the last place is in.
"""

import torch
from torch import nn

tokens = 32768
experts = 128
chosen = 8


class Model(nn.Module):
    def __init__(self, chosen: int):
        super().__init__()
        self.chosen = chosen

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = logits.topk(self.chosen, dim=-1).values
        beaten = logits < best[:, -1:]
        return best.softmax(dim=-1), logits.masked_fill(beaten, float("-inf")).softmax(dim=-1)


def get_inputs():
    return [torch.randn(tokens, experts)]


def get_init_inputs():
    return [chosen]
