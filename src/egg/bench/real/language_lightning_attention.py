"""Linear attention with decay in blocks as MiniMax-01 computes it, bf16 inputs, fp32 state.

64 heads of 128, 8 blocks of 256. Every block attends to itself under a decaying triangle and to all
before it through a state of keys times values; heads decay at their own rates.
"""

import torch
from torch import nn

batch_size = 1
heads = 64
blocks = 8
block = 256
head_dim = 128


class Model(nn.Module):
    slopes: torch.Tensor

    def __init__(self, heads: int, block: int):
        super().__init__()
        self.block = block
        rates = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slopes", rates.view(heads, 1, 1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rates = self.slopes.abs()
        places = torch.arange(self.block, device=q.device)[:, None].float()
        apart = places - places.T
        triangle = torch.where(apart >= 0, torch.exp(-rates * apart.clamp(min=0)), 0.0)
        from_start, to_end = torch.exp(-rates * (places + 1)), torch.exp(-rates * (self.block - 1 - places))
        whole = torch.exp(-rates * self.block)
        scale = q.shape[-1] ** -0.5
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=torch.float32)
        made = []
        for start in range(0, q.shape[2], self.block):
            here = slice(start, start + self.block)
            qi, ki, vi = q[:, :, here].float() * scale, k[:, :, here].float(), v[:, :, here].float()
            inside = (qi @ ki.transpose(-1, -2) * triangle) @ vi
            made.append((inside + (qi * from_start) @ state).to(q.dtype))
            state = whole * state + (ki * to_end).transpose(-1, -2) @ vi
        return torch.cat(made, dim=2)


def get_inputs():
    return [torch.randn(batch_size, heads, blocks * block, head_dim, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [heads, block]
