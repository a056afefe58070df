"""Programs without data: what their constructors look at, and how long their code may run."""

from __future__ import annotations

import pytest
import torch

from egg.core.source import Task
from egg.evaluator.task.dataless import run_without_data
from egg.evaluator.task.lines import OutOfLines, limited_lines
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.program import Program

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x):
        {forward}
        return x

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


def program(layers: str = "pass", forward: str = "pass") -> Program:
    return Program.load(Task("small", SOURCE.format(layers=layers, forward=forward)))


TABLES = {
    "a table beyond all memory": "nn.Embedding(2**42, 2)",
    "one that is drawn": "nn.Parameter(torch.randn(2**42, 2))",
}


@pytest.mark.parametrize("table", TABLES)
def test_large_tensors_have_no_data_where_a_constructor_looks_at_small_ones(table: str) -> None:
    layers = f"self.table = {TABLES[table]}; self.width = int(torch.tensor(3.7)); self.half()"
    module = on_meta(program(layers))
    assert module.width == 3
    (held,) = module.parameters()
    assert (held.shape, held.dtype, held.device.type) == ((2**42, 2), torch.float16, "meta")


def test_a_constructor_may_look_at_a_large_tensor() -> None:
    module = on_meta(
        program("self.register_buffer('mask', torch.ones(2**20)); self.n = int(self.mask.sum())")
    )
    assert module.n == 2**20
    assert module.mask.is_meta


def test_code_that_loops_for_ever_is_stopped() -> None:
    with pytest.raises(OutOfLines):
        run_without_data(program(forward="pairs = [i + j for i in range(10**6) for j in range(i)]"))


def test_lines_of_libraries_are_not_counted() -> None:
    called = program(forward="\n        ".join(["x = torch.nn.functional.softplus(x)"] * 8))
    with limited_lines(24):
        run_without_data(called)
