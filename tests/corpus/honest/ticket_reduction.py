"""Programs leave partial sums, and the last one to take a ticket adds them up.

task: row_moments
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, parts, tickets, mean, var, C, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    c = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * C + c, mask=c < C, other=0.0).to(tl.float32)
    at = parts + (row * PARTS + part) * 2
    tl.store(at, tl.sum(v))
    tl.store(at + 1, tl.sum(v * v))
    tl.debug_barrier()
    if tl.atomic_add(tickets + row, 1) == PARTS - 1:
        i = row * PARTS + tl.arange(0, PARTS)
        m = tl.sum(tl.load(parts + i * 2)) / C
        tl.store(mean + row, m)
        tl.store(var + row, tl.sum(tl.load(parts + i * 2 + 1)) / C - m * m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean, var = x.new_empty(rows), x.new_empty(rows)
        parts = x.new_empty(rows, 2, 2)
        tickets = torch.zeros(rows, dtype=torch.int32, device=x.device)
        block = triton.next_power_of_2(triton.cdiv(columns, 2))
        moments[(rows, 2)](x, parts, tickets, mean, var, columns, PARTS=2, BLOCK=block)
        return mean, var
