# policy: library_calls=forbid
"""Cross entropy of every next-token prediction, as a perplexity report needs it."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 4096
vocabulary = 32000


class Model(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets, reduction="none")


def get_inputs():
    return [torch.randn(tokens, vocabulary), torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return []
