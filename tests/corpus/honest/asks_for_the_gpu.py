"""A persistent kernel that asks how many multiprocessors there are, and insists on a GPU.

task: row_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

NUM_SMS = torch.cuda.get_device_properties(0).multi_processor_count


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr, SMS: tl.constexpr):
    c = tl.arange(0, BLOCK)
    m = c < n
    for row in tl.range(tl.program_id(0), rows, SMS):
        x = tl.load(x_ptr + row * n + c, mask=m, other=-float("inf"))
        e = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + row * n + c, e / tl.sum(e, 0), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (min(NUM_SMS, x.shape[0]),)
        softmax_kernel[grid](
            x, y, x.shape[0], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), SMS=grid[0]
        )
        return y
