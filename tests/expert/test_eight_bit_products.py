"""Products of eight-bit whole numbers that are added up in 32 bits: on tensor cores, exact at every size."""

from __future__ import annotations

import re

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe, Without
from egg.hardware.gpus import resolve
from tests.expert.elsewhere import check, program, written

WEIGHT = 'self.register_buffer("weight", torch.randint(-128, 128, (wide, deep), dtype=torch.int8))'
SCALED = program(
    "y = torch._int_mm(x, self.weight.t()).float() * scale\nreturn torch.relu(y)",
    "x = torch.randint(-128, 128, (rows, deep), dtype=torch.int8); scale = torch.rand(rows, 1)",
    WEIGHT, "deep, wide", rows=512, deep=2560, wide=1024,
)  # fmt: skip
ACROSS = program(
    "return torch._int_mm(x, weight)",
    "x = torch.randint(-128, 128, (rows, deep), dtype=torch.int8); "
    "weight = torch.randint(-128, 128, (deep, wide), dtype=torch.int8)",
    "self.none = 0", "", rows=64, deep=96, wide=48,
)  # fmt: skip


def eight_bits(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("rows", "deep", "wide"), [(19, 72, 40), (130, 40, 136)])
def test_a_product_of_whole_numbers_is_exact_with_what_follows_in_its_tiles(
    rows: int, deep: int, wide: int
) -> None:
    text = written(SCALED)
    assert "total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)" in text
    assert re.search(r"total = tl\.dot\(.*, total, out_dtype=tl\.int32\)", text)  # Triton 3.6 asks for it
    assert text.count("@triton.jit") == 1
    check(SCALED, (deep, wide), [eight_bits(rows, deep), torch.rand(rows, 1)])


def test_a_right_operand_that_lies_along_its_columns_is_read_as_it_lies() -> None:
    assert "tl.dot" in written(ACROSS)
    check(ACROSS, (), [eight_bits(33, 24), eight_bits(24, 16)])


def test_a_product_that_is_left_to_pytorch_has_a_public_name() -> None:
    task = Task("whole", SCALED)
    source = kernel_file(task, graph_of(task), Recipe().after(Without("product")), resolve("H200")).source
    assert "torch.matmul(x.double(), permute.double()).int()" in source
