"""Each input is read with strides of its own, wherever it lies.

task: gated_product
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {
        "a": {"dtypes": ["float32"], "shape": ["rows", "cols"], "layout": "any"},
        "b": {"dtypes": ["float32"], "shape": ["rows", "cols"], "layout": "any"},
    },
    "sizes": {"rows": {}, "cols": {}},
    "arguments": {},
    "modes": ["train", "eval"],
    "gradients": "none",
}


@triton.jit
def gated(a, b, y, n, C, row, col, row_b, col_b, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    s = tl.sigmoid(tl.load(b + i // C * row_b + i % C * col_b, mask=m, other=0.0).to(tl.float32))
    v = tl.load(a + i // C * row + i % C * col, mask=m, other=0.0).to(tl.float32)
    tl.store(y + i, v * s, mask=m)


class Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, model, *inputs):
        return model.compute(*inputs)

    @staticmethod
    def backward(ctx, *g):
        raise NotImplementedError("forward only")


class ModelNew(nn.Module):
    def forward(self, a, b):
        if a.shape != b.shape or a.dim() != 2 or {a.dtype, b.dtype} != {torch.float32}:
            raise ValueError("not handled")
        return Forward.apply(self, a, b)

    def compute(self, a, b):
        n = a.numel()
        y = a.new_empty(a.shape)
        gated[(triton.cdiv(n, 1024),)](a, b, y, n, a.shape[1], *a.stride(), *b.stride(), BLOCK=1024)
        return y
