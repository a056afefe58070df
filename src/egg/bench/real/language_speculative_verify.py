"""Verification of five drafted tokens for Llama-3-8B, fp32: 128256 words, 16 sequences.

A token is accepted while the target's probability over the draft's beats a random number; a running product
ends at the first refusal. Returned are the accepted lengths and, at the first refused place, the target's
distribution where it exceeds the draft's, normalised.
"""

import torch
from torch import nn

batch_size = 16
drafted = 5
vocabulary = 128256
steps = 1048576.0


class Model(nn.Module):
    def __init__(self, steps: float):
        super().__init__()
        self.steps = steps

    def forward(
        self, target: torch.Tensor, draft: torch.Tensor, tokens: torch.Tensor, random: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        p, q = target.softmax(dim=-1), draft.softmax(dim=-1)
        p_of = p[:, :-1].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        q_of = q.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        accepted = (random.to(p.dtype) / self.steps < p_of / q_of).to(torch.int64)
        lengths = accepted.cumprod(dim=-1).sum(dim=-1)
        q = torch.cat((q, torch.zeros_like(q[:, :1])), dim=1)
        at = lengths[:, None, None].expand(-1, 1, p.shape[-1])
        rest = (p.gather(1, at) - q.gather(1, at)).clamp(min=0).squeeze(1)
        return lengths.to(p.dtype), rest / rest.sum(dim=-1, keepdim=True).clamp(min=1e-9)


def get_inputs():
    target = torch.randn(batch_size, drafted + 1, vocabulary)
    draft = torch.randn(batch_size, drafted, vocabulary)
    tokens = torch.randint(0, vocabulary, (batch_size, drafted))
    return [target, draft, tokens, torch.randint(0, int(steps), (batch_size, drafted))]


def get_init_inputs():
    return [steps]
