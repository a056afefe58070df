"""Value and place in one reading; the first of equal values wins."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_argmax(x_ptr, place_ptr, value_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * columns + c, mask=c < columns, other=float("-inf"))
    value, place = tl.max(v, axis=0, return_indices=True)
    tl.store(place_ptr + row, place.to(tl.int64))
    tl.store(value_ptr + row, value)


class ModelNew(nn.Module):
    def forward(self, logits):
        logits = logits.contiguous()
        rows, columns = logits.shape
        place = torch.empty((rows,), device=logits.device, dtype=torch.int64)
        value = torch.empty((rows,), device=logits.device, dtype=logits.dtype)
        block = triton.next_power_of_2(columns)
        row_argmax[(rows,)](logits, place, value, columns, BLOCK=block, num_warps=16)
        return place, value
