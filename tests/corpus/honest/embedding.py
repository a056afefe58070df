"""Integer inputs: gather and sum in one kernel.

task: embedding_sum
needs: cpu
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embedding_sum(indices, table, out, F, BAG: tl.constexpr, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    f = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.static_range(BAG):
        row = tl.load(indices + bag * BAG + k)
        acc += tl.load(table + row * F + f, mask=f < F, other=0.0)
    tl.store(out + bag * F + f, acc, mask=f < F)


class ModelNew(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.table = nn.Embedding(entries, features)

    def forward(self, indices):
        indices = indices.contiguous()
        table = self.table.weight
        bags, bag_size = indices.shape
        out = table.new_empty(bags, table.shape[1])
        block = triton.next_power_of_2(table.shape[1])
        embedding_sum[(bags,)](indices, table, out, table.shape[1], BAG=bag_size, BLOCK=block)
        return out
