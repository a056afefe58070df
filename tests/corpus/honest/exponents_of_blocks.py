"""The shared exponent is read from the bits of the largest element.

task: exponents_of_blocks
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def blocks(x, codes, scales, C, COUNT, BLOCKS: tl.constexpr):
    r = tl.program_id(0)
    block = tl.arange(0, BLOCKS)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    inside = block < COUNT
    v = tl.load(x + r * C + at, mask=inside[:, None], other=0.0)
    v = v * v
    nan = tl.max((v != v).to(tl.int32), axis=1) > 0
    largest = tl.maximum(tl.max(v, axis=1), 1e-20)
    exponent = tl.maximum((largest.to(tl.int32, bitcast=True) >> 23) - 127 - 8, -127)
    factor = tl.where(largest == float("inf"), 0.0, tl.exp2(-exponent.to(tl.float32)))
    q = v * factor[:, None]
    q = tl.where(q != q, q, tl.minimum(q, 448.0))
    q = tl.where(nan[:, None], float("nan"), q)
    tl.store(codes + r * C + at, q.to(tl.float8e4nv), mask=inside[:, None])
    byte = tl.where(nan | (largest == float("inf")), 255, exponent + 127)
    tl.store(scales + r * COUNT + block, byte.to(tl.uint8), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.dim() == 2
        assert x.dtype == torch.float32
        assert x.shape[1] % 32 == 0
        x = x.contiguous()
        rows, columns = x.shape
        count = columns // 32
        codes = torch.empty(rows, columns, dtype=torch.float8_e4m3fn, device=x.device)
        scales = torch.empty(rows, count, dtype=torch.float8_e8m0fnu, device=x.device)
        padded = triton.next_power_of_2(count)
        blocks[(rows,)](x, codes, scales.view(torch.uint8), columns, count, BLOCKS=padded)
        return codes, scales
