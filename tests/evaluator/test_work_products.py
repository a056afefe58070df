"""The work of matrix products of every shape, and of what is made of them, against counts made by hand."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import time
from functools import cache
from math import ceil

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.evaluator.work.arguments import argument_forms
from egg.evaluator.work.count import count_work
from tests.evaluator.counting import access, count, tensor, ttir

TILES = {"BM": 64, "BN": 64, "BK": 32}


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * K + k[None, :]
    right = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        x = tl.load(left, mask=(m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None] & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize(
    ("dtype", "precision", "expected"),
    [
        (torch.float16, "ieee", {"fp16": 1}),
        (torch.bfloat16, "tf32", {"bf16": 1}),
        (torch.float8_e4m3fn, "ieee", {"fp8": 1}),
        (torch.float32, "tf32", {"tf32": 1}),
        (torch.float32, "tf32x3", {"tf32": 3}),
        (torch.float32, "ieee", {}),
    ],
)
def test_a_matrix_product(dtype: torch.dtype, precision: str, expected: dict[str, int]):
    M, N, K = 300, 200, 500
    operands = tensor(M, K, dtype=dtype), tensor(K, N, dtype=dtype), tensor(M, N)
    grid = ceil(M / 64), ceil(N / 64)
    work = count(matmul_kernel, grid, *operands, M, N, K, PRECISION=precision, **TILES)
    flops = 2 * 64 * 64 * 32 * grid[0] * grid[1] * ceil(K / 32)
    assert work.tensor_flops == {name: times * flops for name, times in expected.items()}
    assert work.product_flops == (0 if expected else flops)
    assert access(work, "a").bytes == dtype.itemsize * M * K * grid[1]
    assert access(work, "b").bytes == dtype.itemsize * K * N * grid[0]
    assert access(work, "c", store=True).bytes == 4 * M * N
    assert work.iterations == ceil(K / 32)
    assert work.distinct_bytes == dtype.itemsize * (M * K + K * N) + 4 * M * N
    assert work.complete


@cache
def matmul_ir() -> str:
    sizes = {"M": 9, "N": 9, "K": 9, "PRECISION": "tf32", **TILES}
    return ttir(matmul_kernel, {"a": tensor(1), "b": tensor(1), "c": tensor(1), **sizes})


@settings(max_examples=8, deadline=None)
@given(M=st.integers(1, 3_000), N=st.integers(1, 3_000), K=st.integers(1, 5_000))
def test_any_matrix_product(M: int, N: int, K: int):
    grid = ceil(M / 64), ceil(N / 64)
    given = {"a": tensor(M, K), "b": tensor(K, N), "c": tensor(M, N), "M": M, "N": N, "K": K}
    work = count_work(matmul_ir(), argument_forms(given), grid)
    assert work is not None
    assert work.complete
    assert access(work, "a").bytes == pytest.approx(4 * M * K * grid[1])
    assert access(work, "b").bytes == pytest.approx(4 * K * N * grid[0])
    assert access(work, "c", store=True).bytes == pytest.approx(4 * M * N)
    assert work.tensor_flops["tf32"] == pytest.approx(2 * 64 * 64 * 32 * grid[0] * grid[1] * ceil(K / 32))
    for moved in work.accesses:
        assert moved.bytes <= moved.sector_bytes <= 8 * moved.bytes


@triton.jit
def split_k_kernel(a, b, c, M, N, K, PER, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    start = tl.program_id(2) * PER
    for at in range(start, tl.minimum(start + PER, K), BK):
        k = at + tl.arange(0, BK)
        acc += tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    tl.atomic_add(c + m[:, None] * N + n[None, :], acc)


def test_a_product_split_along_k_adds_atomically():
    M, N, K, per = 128, 256, 1024, 320
    half = {"dtype": torch.float16}
    operands = tensor(M, K, **half), tensor(K, N, **half), tensor(M, N)
    work = count(split_k_kernel, (2, 4, 4), *operands, M, N, K, per, **TILES)
    assert work.tensor_flops == {"fp16": 2 * M * N * K}
    stored = access(work, "c", store=True)
    assert stored.atomic
    assert stored.bytes == stored.sector_bytes == 4 * M * N * 4
    assert work.iterations == 8, "ten trips in three programs of four, two in the last"
    assert 1.2 < work.imbalance < 1.25


@triton.jit
def grouped_kernel(
    a, b, c, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    width = GROUP * columns
    first = (pid // width) * GROUP
    size = min(rows - first, GROUP)
    m = (first + (pid % width) % size) * BM + tl.arange(0, BM)
    n = ((pid % width) // size) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        k = at + tl.arange(0, BK)
        x = tl.load(a + (m % M)[:, None] * K + k[None, :])
        acc = tl.dot(x, tl.load(b + k[:, None] * N + (n % N)[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def test_a_grid_of_one_axis_that_walks_over_tiles_in_groups():
    M, N, K = 2000, 1500, 512
    grid = ceil(M / 64) * ceil(N / 64)
    half = {"dtype": torch.float16}
    operands = tensor(M, K, **half), tensor(K, N, **half), tensor(M, N)
    work = count(grouped_kernel, (grid,), *operands, M, N, K, GROUP=8, **TILES)
    assert work.tensor_flops == {"fp16": 2 * 64 * 64 * grid * K}
    assert access(work, "c", store=True).bytes == pytest.approx(4 * M * N, rel=0.03)
    assert access(work, "a").bytes == 2 * 64 * K * grid, "no mask: every tile is whole"
    assert work.complete


@triton.jit
def persistent_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * columns, tl.num_programs(0)):
        m = (tile // columns) * BM + tl.arange(0, BM)
        n = (tile % columns) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for at in range(0, K, BK):
            k = at + tl.arange(0, BK)
            x = tl.load(a + m[:, None] * K + k[None, :], mask=m[:, None] < M)
            acc = tl.dot(x, tl.load(b + k[:, None] * N + n[None, :], mask=n[None, :] < N), acc)
        tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def test_a_persistent_product_does_as_much_as_the_plain_one():
    M, N, K, programs = 2048, 1024, 256, 100
    half = {"dtype": torch.float16}
    operands = tensor(M, K, **half), tensor(K, N, **half), tensor(M, N)
    work = count(persistent_kernel, (programs,), *operands, M, N, K, **TILES)
    tiles = ceil(M / 64) * ceil(N / 64)
    assert work.tensor_flops["fp16"] == pytest.approx(2 * M * N * K)
    assert access(work, "a").bytes == pytest.approx(2 * M * K * ceil(N / 64))
    assert access(work, "c", store=True).bytes == pytest.approx(4 * M * N)
    assert work.iterations == pytest.approx(tiles / programs * K / 32)
    assert work.imbalance == pytest.approx(ceil(tiles / programs) / (tiles / programs), rel=0.01)


def test_bigger_tiles_and_deeper_loops_do_not_take_longer_than_a_second_or_two():
    half = {"dtype": torch.float16}
    M = N = K = 16_384
    operands = tensor(M, K, **half), tensor(K, N, **half), tensor(M, N)
    given = dict(zip(persistent_kernel.arg_names, (*operands, M, N, K), strict=False))
    given |= {"BM": 256, "BN": 256, "BK": 64}
    text = ttir(persistent_kernel, given)
    start = time.process_time()
    work = count_work(text, argument_forms(given), (132,))
    assert time.process_time() - start < 4
    assert work is not None
    assert work.tensor_flops["fp16"] == pytest.approx(2 * M * N * K, rel=0.05)


@triton.jit
def attention_kernel(q, k, v, out, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    m, d = block * BM + tl.arange(0, BM), tl.arange(0, D)
    base = head * T * D
    query = tl.load(q + base + m[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, (block + 1) * BM, BN):
        n = start + tl.arange(0, BN)
        score = tl.dot(query, tl.trans(tl.load(k + base + n[:, None] * D + d[None, :])))
        weight = tl.exp(tl.where(m[:, None] >= n[None, :], score, float("-inf")))
        total += tl.sum(weight, 1)
        acc = tl.dot(weight.to(tl.float16), tl.load(v + base + n[:, None] * D + d[None, :]), acc)
    tl.store(out + base + m[:, None] * D + d[None, :], acc / total[:, None])


def test_causal_attention_is_uneven():
    T, D, heads, BM, BN = 2048, 64, 12, 128, 64
    shape = tensor(heads, T, D, dtype=torch.float16)
    work = count(attention_kernel, (T // BM, heads), shape, shape, shape, shape, T, D=D, BM=BM, BN=BN)
    blocks = T // BM
    trips = sum((block + 1) * BM // BN for block in range(blocks))
    assert work.tensor_flops == {"fp16": pytest.approx(heads * trips * 2 * 2 * BM * BN * D)}
    assert access(work, "k").bytes == pytest.approx(heads * trips * BN * D * 2)
    assert access(work, "q").bytes == heads * T * D * 2
    assert work.iterations == pytest.approx(trips / blocks)
    assert 1.7 < work.imbalance < 2
    assert work.complete


@triton.jit
def conv_kernel(x, w, out, C, H, W, F, OH, OW, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """3x3, padding 1: rows are output pixels of one image, K runs over channels and taps."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image, row, column = m // (OH * OW), (m // OW) % OH, m % OW
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(0, C * 9, BK):
        k = at + tl.arange(0, BK)
        channel, tap = k // 9, k % 9
        h = row[:, None] + (tap // 3)[None, :] - 1
        v = column[:, None] + (tap % 3)[None, :] - 1
        inside = (h >= 0) & (h < H) & (v >= 0) & (v < W)
        place = ((image[:, None] * C + channel[None, :]) * H + h) * W + v
        acc = tl.dot(
            tl.load(x + place, mask=inside, other=0.0), tl.load(w + n[None, :] * C * 9 + k[:, None]), acc
        )
    tl.store(out + (image[:, None] * F + n[None, :]) * OH * OW + (m % (OH * OW))[:, None], acc)


def test_a_convolution_as_a_product():
    images, C, H, F = 2, 32, 32, 64
    pixels = images * H * H
    work = count(
        conv_kernel, (pixels // 64, 1), tensor(images, C, H, H), tensor(F, C, 3, 3), tensor(images, F, H, H),
        C, H, H, F, H, H, BM=64, BN=64, BK=32,
    )  # fmt: skip
    assert work.tensor_flops == {"tf32": 2 * pixels * F * C * 9}
    inside = (3 * H - 2) ** 2
    assert access(work, "x").bytes == pytest.approx(4 * images * C * inside, rel=0.02)
    assert access(work, "x").sector_bytes < access(work, "x").bytes, "neighbouring pixels share sectors"
    assert access(work, "out", store=True).sector_bytes == 4 * pixels * F
    assert work.complete


@triton.jit
def descriptor_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(a.load([m, start]), b.load([n, start]).T, acc)
    out.store([m, n], acc)


def test_tensor_descriptors_of_host_and_device():
    M, N, K = 200, 128, 512
    a = TensorDescriptor(tensor(M, K, dtype=torch.float16), [M, K], [K, 1], [64, 32])
    b = TensorDescriptor(tensor(N, K, dtype=torch.float16), [N, K], [K, 1], [64, 32])
    work = count(descriptor_kernel, (4, 2), a, b, tensor(M, N), M, N, K, **TILES)
    assert access(work, "a").bytes == access(work, "a").sector_bytes == 2 * M * K * 2
    assert access(work, "a").argument_bytes == 2 * M * K
    assert access(work, "b").bytes == 2 * N * K * 4
    assert access(work, "c", store=True).bytes == 4 * M * N
    assert work.tensor_flops == {"fp16": 2 * 256 * N * K}
    assert work.complete
