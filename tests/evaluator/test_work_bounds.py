"""How far a launch reaches at its own size, read from the IR: nothing runs, nothing is allocated."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from egg.evaluator.work.arguments import argument_forms
from egg.evaluator.work.bounds import Outside, Reach, reach
from egg.evaluator.work.narrow import Narrow
from tests.evaluator.counting import tensor, ttir


@triton.jit
def rows_kernel(x, y, C, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    r = tl.program_id(0)
    if WIDE:
        r = r.to(tl.int64)
    for c0 in range(0, C, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        tl.store(y + r * C + c, tl.load(x + r * C + c, mask=c < C), mask=c < C)


@triton.jit
def gather_kernel(x, index, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    tl.store(y + i, tl.load(x + at, mask=i < n), mask=i < n)


@triton.jit
def table_kernel(x, index, y, C, FORM: tl.constexpr, BLOCK: tl.constexpr):
    p, c = tl.program_id(0), tl.arange(0, BLOCK)
    row = tl.load(index + p)
    if FORM == "narrow":
        at = row.to(tl.int32) * C + c
    elif FORM == "widened late":
        at = (row.to(tl.int32) * C).to(tl.int64) + c
    elif FORM == "wide":
        at = row.to(tl.int64) * C + c
    else:
        at = tl.program_id(1).to(tl.int64) * C * 65536 + row.to(tl.int32) * 16 + c
    tl.store(y + p * C + c, tl.load(x + at))


def reached(fn: Any, grid: tuple[int, ...], **given: Any) -> Reach:
    found = reach(ttir(fn, given), argument_forms(given), grid)
    assert found is not None
    return found


def test_offsets_that_wrap_around_in_32_bits():
    x = tensor(65_536, 49_152, dtype=torch.float16)
    found = reached(rows_kernel, (65_536,), x=x, y=x, C=49_152, BLOCK=1024, WIDE=False).outside
    assert isinstance(found, Outside)
    assert found.wrapped
    assert "wraps around in 32 bits" in found.words("rows_kernel")
    wide = reached(rows_kernel, (65_536,), x=x, y=x, C=49_152, BLOCK=1024, WIDE=True)
    assert wide.outside is None


def test_offsets_that_wrap_around_into_the_tensor():
    """The last row begins at 2**32: in 32 bits that is the first element."""
    x = tensor(2**18 + 1, 2**14, dtype=torch.int8)
    found = reached(rows_kernel, (2**18 + 1,), x=x, y=x, C=2**14, BLOCK=1024, WIDE=False).outside
    assert isinstance(found, Outside)
    assert found.wrapped


def test_a_grid_that_is_too_long():
    x = tensor(100, 64)
    assert reached(rows_kernel, (100,), x=x, y=x, C=64, BLOCK=64, WIDE=False).outside is None
    found = reached(rows_kernel, (101,), x=x, y=x, C=64, BLOCK=64, WIDE=False).outside
    assert found is not None
    assert (found.place, found.wrapped) == ((100, 0, 0), False)
    assert "at elements 6400 to 6463 where it has 0 to 6399" in found.words("rows_kernel")


def test_a_view_may_walk_through_its_storage():
    x = tensor(101, 64)[1:]
    y = tensor(100, 64)
    assert reached(rows_kernel, (100,), x=x, y=y, C=64, BLOCK=64, WIDE=False).outside is None


def test_addresses_that_follow_from_data_pass():
    given = {"x": tensor(10), "index": tensor(4096, dtype=torch.int32), "y": tensor(4096), "n": 4096}
    assert reached(gather_kernel, (4,), **given, BLOCK=1024).outside is None


def test_how_far_stores_go():
    y = tensor(100, 64)
    x = tensor(100, 64)
    found = reached(rows_kernel, (50,), x=x, y=y, C=64, BLOCK=64, WIDE=False)
    assert max(high for _, high in found.stored.values()) == 50 * 64 * 4 - 1


@pytest.mark.parametrize(
    ("form", "wraps"), [("narrow", True), ("widened late", True), ("wide", False), ("short column", False)]
)
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_offsets_from_data_must_span_a_long_tensor(form: str, wraps: bool, index: torch.dtype):
    def found(rows: int) -> Outside | Narrow | None:
        given = {"x": tensor(rows, 4096), "index": tensor(8, dtype=index), "y": tensor(8, 4096), "C": 4096}
        return reached(table_kernel, (8, 1), **given, FORM=form, BLOCK=1024).outside

    short, long = found(2**18), found(2**20)
    assert short is None
    assert isinstance(long, Narrow) == wraps
    if long is not None:
        assert "argument 'x'" in long.words("table_kernel")
