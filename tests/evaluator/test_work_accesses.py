"""Bytes, sectors and pieces of memory that loads and stores touch, against counts made by hand."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from functools import cache
from math import ceil

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.resources import Access
from egg.evaluator.work.arguments import TensorArgument, argument_forms
from egg.evaluator.work.count import count_work
from tests.evaluator.counting import access, count, tensor, ttir


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def test_an_addition():
    n = 10_000
    work = count(add_kernel, (10,), tensor(n), tensor(n), tensor(n), n, BLOCK=1024)
    for argument in ("x", "y"):
        assert access(work, argument).bytes == access(work, argument).sector_bytes == 4 * n
        assert access(work, argument).argument_bytes == 4 * n
    assert access(work, "out", store=True).bytes == 4 * n
    assert work.flops == 10 * 1024, "masked elements are computed too"
    assert (work.special, work.product_flops, work.tensor_flops) == (0, 0, {})
    assert (work.iterations, work.complete) == (1, True)
    assert work.distinct_bytes == 12 * n
    assert work.sector_efficiency == 1
    assert 1 < work.imbalance < 1.03, "the last program has less to do"


def test_a_tensor_that_starts_inside_a_sector_costs_one_sector_more_per_program():
    given = {"x": tensor(4096), "y": tensor(4096), "out": tensor(4096), "n": 4096, "BLOCK": 1024}
    forms = {**argument_forms(given), "x": TensorArgument(4 * 4096, 4, misaligned=16)}
    work = count_work(ttir(add_kernel, given), forms, (4,))
    assert work is not None
    assert access(work, "x").sector_bytes == 4 * 4096 + 4 * 32
    assert access(work, "y").sector_bytes == 4 * 4096


@cache
def add_ir() -> str:
    return ttir(add_kernel, {"x": tensor(1), "y": tensor(1), "out": tensor(1), "n": 9, "BLOCK": 512})


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 10**9))
def test_any_copy(n: int):
    given = {"x": tensor(n), "y": tensor(n), "out": tensor(n), "n": n}
    work = count_work(add_ir(), argument_forms(given), (ceil(n / 512),))
    assert work is not None
    assert work.loaded_bytes == pytest.approx(8 * n)
    assert work.stored_bytes == pytest.approx(4 * n)
    assert access(work, "x").sector_bytes == pytest.approx(32 * ceil(n / 8))


def test_what_is_not_said_of_the_arguments_is_admitted():
    work = count_work(add_ir(), {}, (4,))
    assert work is not None
    assert not work.complete
    assert work.accesses[0].argument_bytes == 0


def test_an_empty_grid_has_no_work():
    assert count_work(add_ir(), {}, (0,)) is None


@triton.jit
def strided_kernel(x, out, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride))


@pytest.mark.parametrize(("stride", "efficiency"), [(1, 1), (2, 1 / 2), (4, 1 / 4), (8, 1 / 8), (100, 1 / 8)])
def test_a_strided_load_moves_whole_sectors(stride: int, efficiency: float):
    work = count(strided_kernel, (16,), tensor(4096 * stride), tensor(4096), stride, BLOCK=256)
    load = access(work, "x")
    assert load.bytes / load.sector_bytes == pytest.approx(efficiency)
    assert access(work, "out", store=True).sector_bytes == 4 * 4096


@pytest.mark.parametrize(
    ("stride", "scattered"),
    [(1, 1), (2, 1), (8, 1), (12, 1.5), (16, 2), (17, 2), (1024, 2)],
    ids=lambda value: f"{value:.3g}",
)
def test_sectors_that_lie_alone_cost_twice_their_bytes_of_memory(stride: int, scattered: float):
    """Eight elements lie in a sector, sixteen in a piece that memory hands out."""
    work = count(strided_kernel, (16,), tensor(4096 * stride), tensor(4096), stride, BLOCK=256)
    assert access(work, "x").scattered == pytest.approx(scattered, rel=0.01)
    assert access(work, "out", store=True).scattered == 1


@triton.jit
def rows_kernel(x, out, stride, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    tile = tl.load(x + m[:, None] * stride + n[None, :])
    tl.store(out + m[:, None] * BN + n[None, :], tile)


@pytest.mark.parametrize(("wide", "scattered"), [(4, 2), (8, 2), (16, 1), (32, 1)])
def test_rows_shorter_than_a_piece_of_memory_are_scattered(wide: int, scattered: float):
    work = count(rows_kernel, (8,), tensor(512, 1024), tensor(512, wide), 1024, BM=64, BN=wide)
    assert access(work, "x").scattered == scattered
    assert access(work, "out", store=True).scattered == 1


def test_a_row_across_the_edge_of_a_piece_of_memory_takes_two():
    """The same eight elements of every row, at the end of one sector and the beginning of the next."""
    given = {"x": tensor(512, 1024), "out": tensor(512, 8), "stride": 1024, "BM": 64, "BN": 8}
    text = ttir(rows_kernel, given)

    def loaded(misaligned: int) -> Access:
        forms = {**argument_forms(given), "x": TensorArgument(4 * 512 * 1024, 4, misaligned)}
        work = count_work(text, forms, (8,))
        assert work is not None
        return access(work, "x")

    assert (loaded(16).sector_bytes, loaded(16).scattered) == (512 * 64, 1), "two sectors of one piece"
    assert (loaded(48).sector_bytes, loaded(48).scattered) == (512 * 64, 2), "one sector each of two"


@triton.jit
def transpose_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None] + n[None, :] * M, tile)


def test_a_transposed_tile_is_coalesced_on_both_sides_if_it_is_wide_enough():
    square = count(transpose_kernel, (16, 16), tensor(512, 512), tensor(512, 512), 512, 512, BM=32, BN=32)
    assert square.sector_efficiency == 1
    flat = count(transpose_kernel, (512, 16), tensor(512, 512), tensor(512, 512), 512, 512, BM=1, BN=32)
    assert access(flat, "x").sector_bytes == 4 * 512 * 512
    assert access(flat, "out", store=True).sector_bytes == 32 * 512 * 512


@triton.jit
def embedding_kernel(ids, table, out, D, BLOCK: tl.constexpr):
    token, d = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.load(ids + token)
    tl.store(out + token * D + d, tl.load(table + row * D + d, mask=d < D), mask=d < D)


def test_rows_that_data_choose_are_still_contiguous():
    tokens, rows, D = 4096, 50_000, 768
    ids = tensor(tokens, dtype=torch.int64)
    work = count(embedding_kernel, (tokens,), ids, tensor(rows, D), tensor(tokens, D), D, BLOCK=1024)
    assert access(work, "table").bytes == access(work, "table").sector_bytes == 4 * tokens * D
    assert access(work, "table").argument_bytes == 4 * rows * D
    assert access(work, "ids").sector_bytes == 32 * tokens
    assert work.complete


@triton.jit
def gather_kernel(ids, table, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    where = tl.load(ids + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(table + where, mask=(i < n) & (where >= 0)), mask=i < n)


def test_single_elements_that_data_choose_cost_a_sector_each():
    n = 8192
    ids, table = tensor(n, dtype=torch.int32), tensor(1 << 22)
    work = count(gather_kernel, (8,), ids, table, tensor(n), n, BLOCK=1024)
    assert access(work, "table").bytes == 4 * n
    assert access(work, "table").sector_bytes == pytest.approx(32 * n, rel=0.05)
    assert not work.complete, "which elements are loaded depends on data"


@triton.jit
def tuple_kernel(pair, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(pair[0] + i * pair[1]))


def test_arguments_in_a_tuple():
    work = count(tuple_kernel, (1,), (tensor(512), 4), tensor(128), BLOCK=128)
    assert work.loaded_bytes == 512
    assert work.accesses[0].sector_bytes == 128 * 4 * 4
    assert work.complete


@triton.jit
def nearest_kernel(x, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + (i.to(tl.float32) * scale).to(tl.int32)))


def test_an_address_may_go_through_floating_point():
    work = count(nearest_kernel, (4,), tensor(1024), tensor(2048), 2048, 0.5, BLOCK=512)
    assert access(work, "x").bytes == 4 * 2048
    assert access(work, "x").sector_bytes == 4 * 1024
    assert work.complete
