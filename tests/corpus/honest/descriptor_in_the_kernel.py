"""Descriptors are made in the kernel, in scratch memory that the file allocates.

task: clip
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clip(x, y, R, C, BR: tl.constexpr, BC: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [R, C], [C, 1], [BR, BC])
    target = tl.make_tensor_descriptor(y, [R, C], [C, 1], [BR, BC])
    at = [tl.program_id(0) * BR, tl.program_id(1) * BC]
    v = source.load(at)
    v = tl.where(v < 0.0, 0.0, v)
    target.store(at, tl.where(v > 2.0, 2.0, v))


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        assert x.shape[1] % 4 == 0
        x = x.clone(memory_format=torch.contiguous_format)
        triton.set_allocator(scratch)
        y = torch.empty_like(x)
        rows, columns = x.shape
        clip[(triton.cdiv(rows, 16), triton.cdiv(columns, 64))](x, y, rows, columns, BR=16, BC=64)
        return y
