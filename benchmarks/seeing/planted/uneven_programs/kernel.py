"""One sum per program: the first has a ninth of all the work and goes on when the other 4095 are done."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def leading_pages(x_ptr, y_ptr, pages, PAGE: tl.constexpr):
    part = tl.program_id(0)
    i = tl.arange(0, PAGE)
    total = tl.zeros((PAGE,), tl.float32)
    for page in range(tl.maximum(pages // (part + 1), 1)):
        total += tl.load(x_ptr + page * PAGE + i)
    tl.store(y_ptr + part, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def __init__(self, parts: int):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        pages, width = x.shape
        y = torch.empty(self.parts, device=x.device, dtype=x.dtype)
        leading_pages[(self.parts,)](x, y, pages, PAGE=width, num_warps=8)
        return y
