"""A kernel takes every second pixel of an input that PyTorch lays out.

task: every_second_pixel
needs: cpu
policy: library_calls=forbid
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def picked(x, y, height, width, rows, columns, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column, row, image = i % columns, i // columns % rows, i // columns // rows
    v = tl.load(x + image * height * width + 2 * row * width + 2 * column, mask=i < n, other=0.0)
    tl.store(y + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        images, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        y = torch.empty(images, channels, rows, columns, dtype=x.dtype, device=x.device)
        n = y.numel()
        picked[(triton.cdiv(n, 1024),)](x, y, height, width, rows, columns, n, BLOCK=1024)
        return y
