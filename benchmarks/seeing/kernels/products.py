"""Products: one kernel for every layout, precision and tile, and one that splits the inner dimension."""

import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, b_k, b_n,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A is row-major; ``b_k`` and ``b_n`` are B's strides."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    program = tl.program_id(0)
    group = program // (GROUP * tiles_n)
    rows = tl.minimum(tiles_m - group * GROUP, GROUP)
    tile_m = group * GROUP + (program % (GROUP * tiles_n)) % rows
    tile_n = (program % (GROUP * tiles_n)) // rows
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a_ptr + (m % M)[:, None] * K + k[None, :]
    b_at = b_ptr + k[:, None] * b_k + (n % N)[None, :] * b_n
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total, input_precision=PRECISION)
        a_at += BK
        b_at += BK * b_k
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def split_product(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    """Each program takes one of ``SPLIT`` parts of the inner dimension and adds its sums atomically."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * (K // SPLIT) + tl.arange(0, BK)
    a_at = a_ptr + m[:, None] * K + k[None, :]
    b_at = b_ptr + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K // SPLIT, BK):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += BK
        b_at += BK * N
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], total, sem="relaxed")
