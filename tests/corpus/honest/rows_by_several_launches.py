"""Three launches for a third of the rows each: together they write all of them.

task: tall_scale
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, y, first, last, columns, BLOCK: tl.constexpr):
    i = first * columns + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < last * columns
    tl.store(y + i, tl.load(x + i, mask=inside) * 2.5, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        third = triton.cdiv(rows, 3)
        for first in range(0, rows, third):
            last = min(first + third, rows)
            scale[(triton.cdiv((last - first) * columns, 4096),)](x, y, first, last, columns, BLOCK=4096)
        return y
