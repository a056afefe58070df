"""Weights of 8-bit floats: the pass that multiplies them by their scales reads them as they are."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe, Without
from egg.hardware.gpus import resolve
from tests.expert.elsewhere import normal, program
from tests.expert.test_across import body_of

LAYERS = """
w = torch.randn(width, depth)
self.register_buffer("weight", w.to(torch.float8_e4m3fn))
self.register_buffer("scale", torch.rand(width, 1))
"""
GIVEN = "x = torch.randn(rows, depth)"
SIZES = {"rows": 16, "width": 48, "depth": 64}
LEFT = Recipe().after(Without("product"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_weight_is_converted_and_scaled_by_one_pass(dtype: str):
    forward = f"w = (self.weight.to(torch.{dtype}) * self.scale).to(x.dtype)\nreturn F.linear(x, w)"
    source = program(forward, GIVEN, LAYERS, "width, depth", **SIZES)
    body = body_of(source, LEFT, [normal(5, 40)], [24, 40])
    assert "self.weight.to(" not in body


def test_a_gpu_without_such_numbers_leaves_the_conversion_to_pytorch():
    forward = "return F.linear(x, self.weight.float() * self.scale)"
    task = Task("program", program(forward, GIVEN, LAYERS, "width, depth", **SIZES))
    assert "self.weight.to(torch.float32)" in kernel_file(task, graph_of(task), LEFT, resolve("A100")).source
