"""Dense inputs in any order of dimensions are walked as they lie.

task: cube_of_three
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DOMAIN = {
    "inputs": {
        "x": {"dtypes": ["float32"], "shape": ["a", "b", "c"], "layout": "any"},
    },
    "sizes": {"a": {}, "b": {}, "c": {}},
    "arguments": {},
    "modes": ["train", "eval"],
    "gradients": "none",
    "outputs": [{"format": "preserved", "input": "x"}],
}


@triton.jit
def cube(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v * v + v, mask=i < n)


class Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, model, *inputs):
        return model.compute(*inputs)

    @staticmethod
    def backward(ctx, *g):
        raise NotImplementedError("forward only")


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 3 or x.dtype != torch.float32:
            raise ValueError("not handled")
        return Forward.apply(self, x)

    def compute(self, x):
        order = sorted(range(3), key=lambda dim: -x.stride(dim))
        packed = x.permute(order)
        if not packed.is_contiguous():
            order, packed = [0, 1, 2], x.contiguous()
        y = torch.empty_like(packed)
        cube[(triton.cdiv(x.numel(), 1024),)](packed, y, x.numel(), BLOCK=1024)
        return y.permute([order.index(dim) for dim in range(3)])
