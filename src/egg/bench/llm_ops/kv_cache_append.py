"""New keys and values of one decode step written into the caches: Llama-3-8B in bf16, 8 heads of 128.

Every sequence of the batch writes at its own length. The caches come back as new tensors, because a task may
not change its inputs; the copy is part of both sides' work.
"""

import torch
from torch import nn

batch_size = 64
kv_heads = 8
head_dim = 128
capacity = 2048


class Model(nn.Module):
    def forward(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = lengths[:, None, None, None].expand(key.shape)
        return key_cache.scatter(2, rows, key), value_cache.scatter(2, rows, value)


def get_inputs():
    new = [torch.randn(batch_size, kv_heads, 1, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    caches = [torch.randn(batch_size, kv_heads, capacity, head_dim, dtype=torch.bfloat16) for _ in range(2)]
    return [*new, *caches, torch.randint(0, capacity, (batch_size,))]


def get_init_inputs():
    return []
