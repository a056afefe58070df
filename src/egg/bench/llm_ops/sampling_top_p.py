"""Temperature and nucleus of a sampler in fp32: 64 rows over the 128256 words of Llama-3, T = 0.6, p = 0.9.

The smallest set of words whose probabilities reach p keeps them, rescaled to one; the others get zero. Words
as probable as the last one kept are kept too, so that the answer does not depend on the order of equals.
"""

import torch
from torch import nn

batch_size = 64
vocabulary = 128256
temperature = 0.6
nucleus = 0.9


class Model(nn.Module):
    def __init__(self, temperature: float, nucleus: float):
        super().__init__()
        self.temperature = temperature
        self.nucleus = nucleus

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        probabilities = (logits / self.temperature).softmax(dim=-1)
        ordered = probabilities.sort(dim=-1, descending=True).values
        needed = ordered.cumsum(dim=-1) - ordered < self.nucleus
        least = ordered.masked_fill(~needed, 2.0).amin(dim=-1, keepdim=True)
        kept = probabilities.masked_fill(probabilities < least, 0.0)
        return kept / kept.sum(dim=-1, keepdim=True)


def get_inputs():
    return [2.5 * torch.randn(batch_size, vocabulary)]


def get_init_inputs():
    return [temperature, nucleus]
