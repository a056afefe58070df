"""Keys and values of a batch collected from the pages of a shared pool, in bf16.

Llama-3-8B, 8 heads of 128, pages of 16 tokens as paged attention keeps them; 32 sequences of 128 pages each
out of a pool of 8192.
"""

import torch
from torch import nn

batch_size = 32
pages_each = 128
pool_pages = 8192
page_tokens = 16
kv_heads = 8
head_dim = 128


class Model(nn.Module):
    def forward(
        self, key_pool: torch.Tensor, value_pool: torch.Tensor, table: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_pool[table].flatten(1, 2), value_pool[table].flatten(1, 2)


def get_inputs():
    shape = (pool_pages, page_tokens, kv_heads, head_dim)
    table = torch.randint(0, pool_pages, (batch_size, pages_each))
    return [torch.randn(shape, dtype=torch.bfloat16), torch.randn(shape, dtype=torch.bfloat16), table]


def get_init_inputs():
    return []
