"""Scale, bias and softmax in one pass: a program keeps its rows in registers, so x is read once."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS, NUM_WARPS = 4, 4
TUNABLES = {"ROWS": (1, 2, 4, 8), "NUM_WARPS": (2, 4, 8)}


@triton.jit
def affine_softmax(x_ptr, scale_ptr, bias_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Row softmax of x * scale + bias, whole rows per program."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    scale = tl.load(scale_ptr + column, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0)
    place = row[:, None] * columns + column[None, :]
    valid = (row[:, None] < rows) & inside[None, :]
    x = tl.load(x_ptr + place, mask=valid, other=0.0).to(tl.float32)
    score = tl.where(inside[None, :], x * scale[None, :] + bias[None, :], float("-inf"))
    weight = tl.exp(score - tl.max(score, axis=1)[:, None])
    y = weight / tl.sum(weight, axis=1)[:, None]
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=valid)


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        columns = x.shape[-1]
        rows = x.numel() // columns
        y = torch.empty_like(x)
        affine_softmax[(triton.cdiv(rows, ROWS),)](
            x,
            self.scale,
            self.bias,
            y,
            rows,
            columns,
            ROWS=ROWS,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=NUM_WARPS,
        )
        return y
