"""Activations rounded to int8 with a scale per token, in bf16: Llama-3-8B, width 4096, before a W8A8 product.

Returned are the scales and the codes times their scale, as quantisation-aware training does it: a number half
way between two codes may honestly fall to either side, which codes that must match exactly would not allow.
"""

import torch
from torch import nn

tokens = 8192
hidden = 4096


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.float()
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp_min(1e-8) / 127.0
        codes = torch.round(wide / scale).clamp(-127.0, 127.0)
        return (codes * scale).to(x.dtype), scale


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
