"""Rows scaled by a vector, first draft: 256 elements per program, the row found by a division."""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def scale_rows(a, b, c, elements, columns, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = where < elements
    scale = tl.load(a + where // columns, mask=inside)
    tl.store(c + where, scale * tl.load(b + where, mask=inside), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        out = torch.empty_like(B)
        elements = B.numel()
        scale_rows[(triton.cdiv(elements, BLOCK),)](A, B, out, elements, B.shape[1], BLOCK=BLOCK)
        return out
