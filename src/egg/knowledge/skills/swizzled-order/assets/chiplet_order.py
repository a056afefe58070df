"""Batched product whose tiles are dealt out so that neighbours meet in one cache.

Hardware hands programs to the chiplets of an MI300 in turn (program p to chiplet p % 8), each with an L2 of
its own. ``contiguous_per_chiplet`` undoes that: a chiplet gets a contiguous run of tiles, hence whole
batches, and its L2 holds the operands they share. With CHIPLETS = 1 (NVIDIA) it is the identity.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 64, 64, 32
CHIPLETS = 8 if torch.version.hip else 1
NUM_WARPS, NUM_STAGES = 4, 2


@triton.jit
def contiguous_per_chiplet(program, programs, CHIPLETS: tl.constexpr):
    """A permutation of 0..programs-1 for any count: the first ``longer`` chiplets have one program more."""
    chiplet, place = program % CHIPLETS, program // CHIPLETS
    each, longer = programs // CHIPLETS, programs % CHIPLETS
    return chiplet * each + tl.minimum(chiplet, longer) + place


@triton.jit
def batched_product(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CHIPLETS: tl.constexpr,
):  # fmt: skip
    program = contiguous_per_chiplet(tl.program_id(0), tl.num_programs(0), CHIPLETS)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    batch = (program // (tiles_m * tiles_n)).to(tl.int64)
    rest = program % (tiles_m * tiles_n)
    row, across = rest // tiles_n, rest % tiles_n
    # like an ox at the plough: odd rows run backwards, so the stripe of B read last is the next one read
    column = tl.where(row % 2 == 0, across, tiles_n - 1 - across)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_at = a_ptr + batch * M * K + (m % M)[:, None] * K + k[None, :]
    b_at = b_ptr + batch * K * N + k[:, None] * N + (n % N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_at, mask=(start + k < K)[None, :], other=0.0)
        b = tl.load(b_at, mask=(start + k < K)[:, None], other=0.0)
        total = tl.dot(a, b, total)
        a_at += BLOCK_K
        b_at += BLOCK_K * N
    at = c_ptr + batch * M * N + m[:, None] * N + n[None, :]
    tl.store(at, total.to(c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (B, M, K), N = a.shape, b.shape[2]
        c = torch.empty((B, M, N), device=a.device, dtype=a.dtype)
        grid = (B * triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
        batched_product[grid](
            a, b, c, M, N, K, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, CHIPLETS=CHIPLETS,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return c


def get_inputs():
    return [torch.randn(5, 100, 80, dtype=torch.float16), torch.randn(5, 80, 144, dtype=torch.float16)]


def get_init_inputs():
    return []
