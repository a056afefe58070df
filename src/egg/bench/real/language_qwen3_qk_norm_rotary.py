"""Queries and keys of Qwen3-8B between projection and attention, bf16.

RMS norm per head, rotary from positions. Both come from one packed projection and leave with their heads in
front; values only change their layout.
"""

import torch
from torch import nn

batch_size = 4
tokens = 2048
heads = 32
kv_heads = 8
head_dim = 128


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=torch.bfloat16))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class Model(nn.Module):
    def __init__(self, heads: int, kv_heads: int, head_dim: int, theta: float):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.theta = heads, kv_heads, head_dim, theta
        self.q_norm, self.k_norm = RMSNorm(head_dim), RMSNorm(head_dim)

    def forward(
        self, packed: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        steps = torch.arange(0, self.head_dim, 2, device=packed.device).float() / self.head_dim
        angles = positions[..., None].float() * self.theta**-steps
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        cos, sin = angles.cos().to(packed.dtype), angles.sin().to(packed.dtype)
        x = packed.unflatten(-1, (-1, self.head_dim))
        q, k, v = x.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        q = rotated(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotated(self.k_norm(k).transpose(1, 2), cos, sin)
        return q.contiguous(), k.contiguous(), v.transpose(1, 2).contiguous()


def get_inputs():
    packed = torch.randn(batch_size, tokens, (heads + 2 * kv_heads) * head_dim, dtype=torch.bfloat16)
    return [packed, torch.arange(tokens) + torch.randint(0, 100, (batch_size, 1))]


def get_init_inputs():
    return [heads, kv_heads, head_dim, 1000000.0]
