"""Causal self-attention of GPT-2 XL as Hugging Face writes it out, fp16.

1024 tokens, 25 heads of 64, a stored mask.
"""

import torch
from torch import nn

batch_size = 4
tokens = 1024
heads = 25
head_dim = 64


class Conv1D(nn.Module):
    def __init__(self, inp: int, out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inp, out) * inp**-0.5)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (*x.shape[:-1], self.weight.shape[1])
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(size)


class Model(nn.Module):
    bias: torch.Tensor

    def __init__(self, tokens: int, heads: int, head_dim: int):
        super().__init__()
        dim, self.heads = heads * head_dim, heads
        self.ln_1 = nn.LayerNorm(dim, eps=1e-5)
        self.c_attn, self.c_proj = Conv1D(dim, 3 * dim), Conv1D(dim, dim)
        self.half()
        mask = torch.tril(torch.ones(tokens, tokens, dtype=torch.bool)).view(1, 1, tokens, tokens)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, dim = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(dim, dim=2)
        q, k, v = (t.view(batch, tokens, self.heads, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / torch.full(
            [], v.size(-1) ** 0.5, dtype=q.dtype, device=q.device
        )
        causal = self.bias[:, :, :tokens, :tokens]
        lowest = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
        weights = torch.where(causal, scores, lowest).softmax(dim=-1).type(v.dtype)
        mixed = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous().view(batch, tokens, dim)
        return x + self.c_proj(mixed)


def get_inputs():
    return [torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.float16)]


def get_init_inputs():
    return [tokens, heads, head_dim]
