"""A layer of BERT-large, fp16, eval mode: 512 tokens of width 1024, 16 heads, padding masked, norms last."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 16
tokens = 512
heads = 16
head_dim = 64


class Model(nn.Module):
    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        dim, self.heads = heads * head_dim, heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.dense = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=1e-12)
        self.intermediate = nn.Linear(dim, 4 * dim)
        self.output = nn.Linear(4 * dim, dim)
        self.output_norm = nn.LayerNorm(dim, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.half().eval()

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        attended = (places < lengths[:, None])[:, None, None, :]
        mask = (1.0 - attended.to(x.dtype)) * torch.finfo(x.dtype).min
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = (weights @ v).permute(0, 2, 1, 3).flatten(2)
        x = self.attention_norm(self.dropout(self.dense(mixed)) + x)
        hidden = self.output(F.gelu(self.intermediate(x)))
        return self.output_norm(self.dropout(hidden) + x)


def get_inputs():
    x = torch.randn(batch_size, tokens, heads * head_dim, dtype=torch.float16)
    return [x, torch.randint(tokens // 2, tokens + 1, (batch_size,))]


def get_init_inputs():
    return [heads, head_dim]
