"""The last program to take a ticket that acquires loads sums that others changed by relaxed atomics.

task: row_moments
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, sums, tickets, mean, var, C, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    c = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * C + c, mask=c < C, other=0.0).to(tl.float32)
    two = tl.arange(0, 2)
    tl.atomic_add(sums + row * 2 + two, tl.where(two == 0, tl.sum(v), tl.sum(v * v)), sem="relaxed")
    if tl.atomic_add(tickets + row, 1, sem="acq_rel") == PARTS - 1:
        m = tl.load(sums + row * 2) / C
        tl.store(mean + row, m)
        tl.store(var + row, tl.load(sums + row * 2 + 1) / C - m * m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        mean, var = x.new_empty(rows), x.new_empty(rows)
        sums = x.new_zeros(rows, 2)
        tickets = torch.zeros(rows, dtype=torch.int32, device=x.device)
        block = triton.next_power_of_2(triton.cdiv(columns, 2))
        moments[(rows, 2)](x, sums, tickets, mean, var, columns, PARTS=2, BLOCK=block)
        return mean, var
