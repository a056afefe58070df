"""log-softmax of rows too wide for registers: the row is read twice and nothing is written in between.

Storing exp(x - max) and loading it back would be two more passes over memory. Maximum and sum come
from one online pass; the second recomputes what it needs from x, which a short row's L2 may still hold.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
WARPS = 4


@triton.jit
def log_softmax(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    c = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        x = tl.load(x_ptr + row + start + c, mask=start + c < width, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(largest, x)
        # A lane that has seen nothing but -inf would compute inf - inf.
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - shift) + tl.exp(x - shift)
        largest = larger
    top = tl.max(largest, axis=0)
    norm = top + tl.log(tl.sum(total * tl.exp(largest - top), axis=0))
    for start in range(0, width, BLOCK):
        inside = start + c < width
        x = tl.load(x_ptr + row + start + c, mask=inside, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + row + start + c, (x - norm).to(out_ptr.dtype.element_ty), mask=inside)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, width = x.shape
        out = torch.empty_like(x)
        log_softmax[(rows,)](x, out, width, BLOCK=BLOCK, num_warps=WARPS)
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(9, 5000) * 4]


def get_init_inputs() -> list[int]:
    return []
