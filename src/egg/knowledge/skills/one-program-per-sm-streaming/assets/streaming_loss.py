"""Mean squared error by a fixed number of programs that stride over the tensor: one partial sum per program.

The subtraction and the square are fused into the only read. A program per block would leave thousands of
partial sums, or as many atomics on one address; this leaves a few hundred, added by one small kernel.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048
PROGRAMS_PER_SM = 4
SMS_WITHOUT_GPU = 3
NUM_WARPS = 8


@triton.jit
def partial_sums(x_ptr, y_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(size, BLOCK), tl.num_programs(0)):
        at = tl.cast(block, tl.int64) * BLOCK + i
        inside = at < size
        x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        total += (x - y) * (x - y)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def mean_of_sums(sums_ptr, out_ptr, count, size, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    sums = tl.load(sums_ptr + i, mask=i < count, other=0.0)
    tl.store(out_ptr, (tl.sum(sums, axis=0) / size).to(out_ptr.dtype.element_ty))


class Model(nn.Module):
    def forward(self, x, y):
        return ((x - y) ** 2).mean()


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        size = x.numel()
        sms = SMS_WITHOUT_GPU
        if x.is_cuda:
            sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        programs = min(sms * PROGRAMS_PER_SM, triton.cdiv(size, BLOCK))
        sums = torch.empty((programs,), device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=x.dtype)
        partial_sums[(programs,)](x, y, sums, size, BLOCK=BLOCK, num_warps=NUM_WARPS)
        mean_of_sums[(1,)](
            sums, out, programs, float(size), COUNT=triton.next_power_of_2(programs), num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(37, 1601), torch.randn(37, 1601)]


def get_init_inputs():
    return []
