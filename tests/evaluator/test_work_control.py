"""Loops, branches and calls are followed as the launch's arguments decide; what data decide is guessed."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from math import ceil

import pytest
import torch
import triton
import triton.language as tl

from tests.evaluator.counting import access, count, tensor


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.load(x + row * columns + i, mask=i < columns, other=float("-inf")))
    largest = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x + row * columns + i, mask=i < columns, other=float("-inf")) - largest)
    total = tl.sum(total, 0)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.exp(tl.load(x + row * columns + i, mask=i < columns) - largest) / total
        tl.store(out + row * columns + i, value, mask=i < columns)


def test_a_softmax_that_reads_its_rows_three_times():
    rows, columns, block = 100, 5000, 256
    work = count(softmax_kernel, (rows,), tensor(rows, columns), tensor(rows, columns), columns, BLOCK=block)
    trips = ceil(columns / block)
    assert access(work, "x").bytes == 3 * 4 * rows * columns
    assert access(work, "out", store=True).bytes == 4 * rows * columns
    assert work.iterations == 3 * trips
    assert work.special == rows * trips * block * 3, "two exponentials and a division"
    maximum, subtractions, sums, reductions = trips * block, 2 * trips * block, trips * block, 2 * (block - 1)
    assert work.flops == rows * (maximum + subtractions + sums + reductions)
    assert work.distinct_bytes == 2 * 4 * rows * columns


@triton.jit
def while_kernel(x, out, n, limit, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    at = tl.program_id(0) * BLOCK
    while at < n:
        total += tl.load(x + at + i, mask=at + i < n)
        at += limit * BLOCK
    tl.store(out + tl.program_id(0) * BLOCK + i, total)


def test_a_while_loop_whose_end_is_known_is_followed():
    n = 10_000_000
    work = count(while_kernel, (8,), tensor(n), tensor(8 * 256), n, 8, BLOCK=256)
    assert access(work, "x").bytes == 4 * n
    assert work.iterations == pytest.approx(n / 2048, rel=0.001)
    assert work.complete


@triton.jit
def halving_kernel(x, out, n):
    total = 0.0
    while n > 0:
        total += tl.load(x + n)
        n = n // 2
    tl.store(out, total)


def test_a_while_loop_of_uneven_steps_is_walked():
    work = count(halving_kernel, (1,), tensor(2000), tensor(1), 1000)
    assert access(work, "x").bytes == 4 * 10
    assert work.complete


@triton.jit
def search_kernel(x, out, limit):
    at = 0
    while tl.load(x + at) > limit:
        at += 1
    tl.store(out, at)


def test_a_loop_that_data_end_counts_one_trip():
    work = count(search_kernel, (1,), tensor(1000), tensor(1, dtype=torch.int32), 0.5)
    assert access(work, "x").bytes == 4
    assert not work.complete


@triton.jit
def ragged_kernel(lengths, x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, tl.load(lengths + tl.program_id(0)), BLOCK):
        total += tl.load(x + at + i)
    tl.store(out + i, total)


def test_a_loop_bounded_by_data_counts_one_trip():
    work = count(ragged_kernel, (4,), tensor(4, dtype=torch.int32), tensor(4096), tensor(64), BLOCK=64)
    assert access(work, "x").bytes == 4 * 64 * 4
    assert (work.iterations, work.complete) == (1, False)


@triton.jit
def ring_kernel(x, out, n, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total, slot = tl.zeros((BLOCK,), tl.float32), 0
    for _ in range(n):
        total += tl.load(x + slot * BLOCK + i)
        slot = (slot + 1) % STAGES
    tl.store(out + i, total)


def test_what_a_loop_carries_in_uneven_steps_is_walked():
    work = count(ring_kernel, (1,), tensor(1024), tensor(64), 100, STAGES=3, BLOCK=64)
    assert access(work, "x").bytes == access(work, "x").sector_bytes == 100 * 4 * 64
    assert work.complete


@triton.jit
def early_kernel(x, out, n, BLOCK: tl.constexpr):
    if tl.program_id(0) * BLOCK >= n:
        return
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def test_programs_that_return_early_do_nothing():
    work = count(early_kernel, (64,), tensor(6400), tensor(6400), 3200, BLOCK=100 + 28)
    assert access(work, "x").bytes == 4 * 25 * 128
    assert work.flops == 25 * 128
    assert work.imbalance == pytest.approx(64 / 25)


@triton.jit
def branch_kernel(x, flag, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    if tl.load(flag) > 0:
        value = tl.exp(value)
    tl.store(out + i, value)


def test_a_branch_that_data_choose_is_counted_and_said_to_be_a_guess():
    work = count(branch_kernel, (1,), tensor(64), tensor(1, dtype=torch.int32), tensor(64), BLOCK=64)
    assert work.special == 64
    assert not work.complete


@triton.jit(noinline=True)
def doubled(pointer, at):
    return tl.load(pointer + at) * 2.0


@triton.jit
def calling_kernel(x, out):
    tl.store(out + tl.program_id(0), doubled(x, tl.program_id(0)))


def test_a_function_that_is_not_inlined_is_followed():
    work = count(calling_kernel, (512,), tensor(512), tensor(512))
    assert access(work, "x").bytes == 4 * 512
    assert access(work, "x").argument_bytes == 4 * 512
    assert work.flops == 512


@triton.jit
def running_kernel(x, out, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.where(tl.rand(seed, i) > 0.5, tl.load(x + i), 0.0)
    tl.store(out + i, tl.cumsum(value, 0))


def test_scans_and_random_numbers_are_counted():
    work = count(running_kernel, (2,), tensor(512), tensor(512), 7, BLOCK=256)
    assert work.flops > 512 * (1 + 1 + 40), "ten rounds of four operations at least"
    assert work.complete


@triton.jit
def arithmetic_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    for _ in range(n):
        value = value * value + 1.0
    tl.store(out + i, value)


@triton.jit
def summing_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for trip in range(n):
        total += tl.load(x + trip * BLOCK + i)
    tl.store(out + i, total)


def test_only_trips_that_load_are_waited_for():
    idle = count(arithmetic_kernel, (4,), tensor(64), tensor(64), 100, BLOCK=64)
    assert (idle.iterations, idle.waits) == (100, 0), "what is loaded before the loop is not waited for in it"
    loading = count(summing_kernel, (4,), tensor(100, 64), tensor(64), 100, BLOCK=64)
    assert (loading.iterations, loading.waits) == (100, 100)
    assert count(summing_kernel, (4,), tensor(100, 64), tensor(64), 1, BLOCK=64).waits == 1
    assert count(summing_kernel, (4,), tensor(100, 64), tensor(64), 0, BLOCK=64).waits == 0


@triton.jit
def nested_kernel(x, out, rows, columns, OUTER: tl.constexpr, INNER: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        if OUTER:
            total += tl.load(x + row * BLOCK + i)
        for column in range(columns):
            if INNER:
                total += tl.load(x + (row + column) * BLOCK + i)
            else:
                total = total * 2.0
    tl.store(out + i, total)


@pytest.mark.parametrize(
    ("outer", "inner", "waits"), [(False, False, 0), (True, False, 20), (False, True, 600), (True, True, 600)]
)
def test_in_nested_loops_the_innermost_that_loads_is_waited_for(outer: bool, inner: bool, waits: int):
    work = count(nested_kernel, (2,), tensor(64, 64), tensor(64), 20, 30, OUTER=outer, INNER=inner, BLOCK=64)
    assert (work.iterations, work.waits) == (600, waits)


@triton.jit
def triangle_kernel(x, out, rows, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(x + row * BLOCK + i)
        for column in range(row):
            total += tl.load(x + column * BLOCK + i)
    tl.store(out + i, total)


def test_an_inner_loop_that_is_empty_at_first_is_waited_for_later():
    work = count(triangle_kernel, (1,), tensor(64, 64), tensor(64), 40, BLOCK=64)
    assert work.iterations == work.waits == 40 * 39 / 2


@triton.jit
def now_and_then_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for trip in range(n):
        if trip >= 4:
            total += tl.load(x + trip * BLOCK + i)
    tl.store(out + i, total)


def test_a_loop_whose_first_trips_load_nothing_is_waited_for():
    work = count(now_and_then_kernel, (1,), tensor(64, 64), tensor(64), 10, BLOCK=64)
    assert (work.iterations, work.waits) == (10, 10)
