"""Label-smoothed cross-entropy of NLLB-200, fp16 logits over 256206 words.

A loss and its plain part for every token. Padding (1) has loss 0. The smoothing is fairseq's: eps over the
number of other words for each of them.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 1024
vocabulary = 256206
padding = 1


class Model(nn.Module):
    def __init__(self, epsilon: float, padding: int):
        super().__init__()
        self.epsilon, self.padding = epsilon, padding

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lprobs = F.log_softmax(logits, dim=-1, dtype=torch.float32)
        target = target.unsqueeze(-1)
        nll = -lprobs.gather(dim=-1, index=target)
        smooth = -lprobs.sum(dim=-1, keepdim=True)
        padded = target.eq(self.padding)
        nll, smooth = nll.masked_fill(padded, 0.0), smooth.masked_fill(padded, 0.0)
        each = self.epsilon / (lprobs.size(-1) - 1)
        return ((1.0 - self.epsilon - each) * nll + each * smooth).squeeze(-1), nll.squeeze(-1)


def get_inputs():
    target = torch.randint(0, vocabulary, (tokens,))
    target = torch.where(torch.rand(tokens) < 0.1, padding, target)
    return [torch.randn(tokens, vocabulary, dtype=torch.float16), target]


def get_init_inputs():
    return [0.1, padding]
