"""Stores each row at its slot: right wherever no slot comes twice, counted from the end or not.

task: rows_of_a_cache
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_and_store(keys, slots, weight, cache, out, S, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < C
    v = tl.load(keys + row * C + c, mask=mask, other=0.0).to(tl.float32)
    v = v * (1.0 / tl.sqrt(tl.sum(v * v, axis=0) / C + 1e-6))
    made = (v * tl.load(weight + c, mask=mask, other=0.0)).to(tl.bfloat16)
    slot = tl.load(slots + row)
    slot = tl.where(slot < 0, slot + S, slot)
    tl.store(out + row * C + c, made, mask=mask)
    tl.store(cache + slot * C + c, made, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, slots, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.register_buffer("cache", torch.zeros(slots, width, dtype=torch.bfloat16))

    def forward(self, keys, slots):
        if keys.dim() != 2 or keys.dtype != torch.bfloat16 or keys.shape[1] != self.weight.shape[0]:
            raise ValueError("bf16 rows as wide as the cache are needed")
        if slots.shape != keys.shape[:1]:
            raise ValueError("one slot for each row is needed")
        keys, slots = keys.contiguous(), slots.contiguous()
        rows, width = keys.shape
        out = torch.empty_like(keys)
        norm_and_store[(rows,)](
            keys, slots, self.weight, self.cache, out, len(self.cache), width,
            BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
        return out
