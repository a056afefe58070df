"""States bf16 for its input and takes the table in fp32 alone: a domain does not speak of buffers.

task: rotary_table
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {"x": {"dtypes": ["bfloat16"], "shape": ["rows", "columns"], "layout": "any"}},
    "sizes": {"rows": {}, "columns": {"module": True, "argument": "columns"}},
    "arguments": {"columns": "any"},
    "modes": ["train", "eval"],
    "gradients": "none",
}


@triton.jit
def turn(x, table, y, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    t = tl.load(table + i % columns, mask=i < n, other=0.0)
    tl.store(y + i, v * tl.cos(t), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("frequencies", torch.rand(columns))

    def forward(self, x):
        if x.dim() != 2 or x.dtype != torch.bfloat16 or x.shape[1] != self.frequencies.shape[0]:
            raise ValueError("not handled")
        if self.frequencies.dtype != torch.float32:
            raise ValueError("the table is in fp32")
        if torch.is_grad_enabled() and x.requires_grad:
            raise NotImplementedError("forward only")
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        n, columns = x.numel(), x.shape[1]
        turn[(triton.cdiv(n, 1024),)](x.contiguous(), self.frequencies, y, n, columns, BLOCK=1024)
        return y
