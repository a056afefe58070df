"""A kernel leaves out what is on the diagonal, of a copy with a border of zeros; PyTorch makes the border.

task: without_loops
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def without(x, y, size, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for node in range(size):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + row * size * (size + 1) + node * (size + 1) + i)
        tl.store(y + row * size * size + node * size + i, tl.where(i == node, 0.0, v), mask=i < size)


class ModelNew(nn.Module):
    def forward(self, weights):
        batch, size, columns = weights.shape
        if size != columns or size & (size - 1):
            raise ValueError("as many rows as columns, a power of two")
        bordered = torch.empty(batch, size, size + 1, dtype=weights.dtype, device=weights.device)
        bordered[:, :, size:].zero_()
        bordered[:, :, :size].copy_(weights)
        y = torch.empty(batch, size, size, dtype=weights.dtype, device=weights.device)
        without[(batch,)](bordered, y, size, BLOCK=size)
        return y
