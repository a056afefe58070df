"""x / ||x|| over the whole tensor: the second pass walks backwards, so it begins with what L2 still holds.

The norm needs all of x before anything can be scaled, so x is read twice. Programs start roughly
in order of their number: after the first pass the end of x is what is left in L2. Running the second
pass from the end turns that much of the second read into hits; from the beginning it would hit nothing.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
CHUNKS = 4  # blocks a program of the first pass adds up
WARPS = 4


@triton.jit
def sum_of_squares(x_ptr, part_ptr, length, BLOCK: tl.constexpr, CHUNKS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK * CHUNKS
    total = tl.zeros((BLOCK,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        i = first + chunk * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < length, other=0.0)
        total += x * x
    tl.store(part_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def scale(x_ptr, part_ptr, out_ptr, length, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    p = tl.arange(0, PARTS)  # every program adds the few partial sums itself: no third kernel
    total = tl.sum(tl.load(part_ptr + p, mask=p < parts, other=0.0), axis=0)
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    i = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0, eviction_policy="evict_first")
    tl.store(out_ptr + i, x * tl.rsqrt(total), mask=i < length, eviction_policy="evict_first")


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / torch.linalg.vector_norm(x)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        length = x.numel()
        # At scale CHUNKS grows with the length so that parts stays near 1,024.
        parts = triton.cdiv(length, BLOCK * CHUNKS)
        sums = torch.empty((parts,), device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        sum_of_squares[(parts,)](x, sums, length, BLOCK=BLOCK, CHUNKS=CHUNKS, num_warps=WARPS)
        scale[(triton.cdiv(length, BLOCK),)](
            x, sums, out, length, parts, BLOCK=BLOCK, PARTS=triton.next_power_of_2(parts), num_warps=WARPS
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(7, 5003)]


def get_init_inputs() -> list[int]:
    return []
