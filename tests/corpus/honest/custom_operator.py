"""The kernel behind torch.library.custom_op, differentiable, so that it composes with torch.compile.

task: row_softmax
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    e = tl.load(x + at, mask=inside, other=-float("inf"))
    e = tl.exp(e - tl.max(e, axis=0))
    tl.store(y + at, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@torch.library.custom_op("own_softmax::run", mutates_args=())
def run(x: torch.Tensor) -> torch.Tensor:
    return softmax(x)


@run.register_fake
def _(x):
    return torch.empty_like(x)


def backward(ctx, gradient):
    (y,) = ctx.saved_tensors
    product = gradient * y
    return product - y * product.sum(-1, keepdim=True)


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)


run.register_autograd(backward, setup_context=keep)


class ModelNew(nn.Module):
    def forward(self, x):
        return run(x)
