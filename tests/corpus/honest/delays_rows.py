"""A delay line: rows come out as they went in.

task: delay_line
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def delayed(x, line, y, N, R, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.arange(0, ROWS)[:, None]
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (r < R) & (c < C)
    old = tl.load(line + r * C + c, mask=inside, other=0.0)
    kept = tl.load(line + (r + N) * C + c, mask=inside & (r + N < R), other=0.0)
    new = tl.load(x + (r + N - R) * C + c, mask=inside & (r + N >= R), other=0.0)
    tl.debug_barrier()
    tl.store(y + r * C + c, old, mask=inside & (r < N))
    tl.store(line + r * C + c, tl.where(r + N < R, kept, new), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("line", torch.zeros(32, columns, dtype=torch.bfloat16))

    def forward(self, x):
        assert x.dtype == torch.bfloat16
        assert x.dim() == 2
        rows, columns = self.line.shape
        assert x.shape[0] <= rows
        assert x.shape[1] == columns
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(columns, 16),)
        delayed[grid](x, self.line, y, x.shape[0], rows, columns, ROWS=triton.next_power_of_2(rows), BLOCK=16)
        return y
