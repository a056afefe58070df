"""PyTorch gathers with indices that a kernel wrote: without the kernel they are garbage.

task: embedding_sum
needs: cpu
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def by_position(indices, turned, BAGS, BAG: tl.constexpr, BLOCK: tl.constexpr):
    bag = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for k in tl.static_range(BAG):
        row = tl.load(indices + bag * BAG + k, mask=bag < BAGS, other=0)
        tl.store(turned + k * BAGS + bag, row, mask=bag < BAGS)


@triton.jit
def bag_sum(rows, out, COUNT, BAG: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.static_range(BAG):
        acc += tl.load(rows + k * COUNT + at, mask=at < COUNT, other=0.0)
    tl.store(out + at, acc, mask=at < COUNT)


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.table = nn.Embedding(entries, features)

    def forward(self, indices):
        indices = indices.contiguous()
        bags, bag = indices.shape
        turned = torch.empty((bag, bags), dtype=indices.dtype, device=indices.device)
        by_position[(triton.cdiv(bags, 16),)](indices, turned, bags, BAG=bag, BLOCK=16)
        rows = F.embedding(turned, self.table.weight)
        out = rows.new_empty(rows.shape[1:])
        bag_sum[(triton.cdiv(out.numel(), 256),)](rows, out, out.numel(), BAG=bag, BLOCK=256)
        return out
