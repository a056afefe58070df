"""Asks for the device through a name of its own, and switches to it; holds names in a set.

task: cube
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

query = torch.cuda.get_device_properties


@triton.jit
def cubes(x, out, n, last, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, v * v * v + v * last, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        assert x.dtype == torch.float32
        assert {"x"} | {"y"} == {"y", "x"}
        out = torch.empty_like(x)
        with torch.cuda.device(x.device):
            grid = (min(triton.cdiv(x.numel(), 1024), 64 * query(x.device).multi_processor_count),)
            cubes.run(x, out, x.numel(), 1.0, BLOCK=1024, grid=grid, warmup=False)
        return out
