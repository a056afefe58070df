"""Norms that store in another order than that of their rows: a pass of its own applies the statistics."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe, Without
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program

LAYERS = """
self.norm1 = {norm}
self.conv1 = nn.Conv2d(c, c, 3, padding=1)
self.norm2 = nn.GroupNorm(4, c)
self.conv2 = nn.Conv2d(c, c, 3, padding=1)
self.to(torch.float16)
"""
FORWARD = """
y = self.conv1(F.silu(self.norm1(x)))
return self.conv2(F.silu(self.norm2(y + 1))) + x
"""
LEFT = Recipe().after(Without("convolution"))
GIVEN = "x = torch.randn(n, c, h, w, dtype=torch.float16)"


def written(norm: str, **sizes: int) -> tuple[str, str]:
    source = program(FORWARD, GIVEN, LAYERS.format(norm=norm), "c", **sizes)
    task = Task("program", source)
    return source, kernel_file(task, graph_of(task), LEFT, resolve("H200")).source


def check(source: str, text: str, shape: tuple[int, ...]) -> None:
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    torch.manual_seed(2)
    model: nn.Module = space["Model"](shape[1])
    for name, weight in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(weight)
    x = normal(*shape, dtype=torch.float16) + 3
    with torch.no_grad():
        wanted = model(x)
    parameters = {"arguments": [shape[1]], "state": dict(model.state_dict())}
    (made,) = harness.execute(text + RUN, [x], parameters)
    torch.testing.assert_close(made, wanted, atol=3e-2, rtol=3e-2)


def kernels(text: str) -> dict[str, str]:
    return {m[1]: m[0] for m in re.finditer(r"def (\w+_kernel)\(.*?\n\n\n", text, re.DOTALL)}


@pytest.mark.parametrize("norm", ["nn.GroupNorm(4, c)", "nn.InstanceNorm2d(c, affine=True)"])
def test_a_norm_turns_its_result_by_tiles(norm: str):
    """The input has contiguous positions, what the convolution reads has its channels last."""
    source, text = written(norm, n=4, c=64, h=48, w=40)
    stem = "group_norm_silu" if "Group" in norm else "instance_norm_silu"
    apply = kernels(text)[f"{stem}_apply_kernel"]
    store = apply[apply.rindex("tl.store(") :]
    assert "%" not in store, "neighbours on a side of the tile are neighbours in memory"
    assert f"{stem}_finish_kernel" not in kernels(text)
    check(source, text, (2, 8, 5, 7))
    check(source, text, (3, 12, 70, 3))


BATCH_LAYERS = """
self.norm1 = nn.BatchNorm2d(c)
self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
"""


def test_a_batch_norm_in_training_turns_its_result_by_tiles():
    """The kernel that joins the states has stored the running statistics by then."""
    forward, given = (
        "return self.conv1(torch.relu(self.norm1(x))).mean((2, 3))",
        "x = torch.randn(n, c, h, w)",
    )
    source = program(forward, given, BATCH_LAYERS, "c", n=8, c=64, h=56, w=56)
    task = Task("program", source)
    text = kernel_file(task, graph_of(task), LEFT, resolve("H200")).source
    made = kernels(text)
    assert "batch_norm_relu_finish_kernel" not in made
    assert "running" in made["batch_norm_relu_join_kernel"]
    apply = made["batch_norm_relu_apply_kernel"]
    assert "running" not in apply
    assert "%" not in apply[apply.rindex("tl.store(") :], "neighbours in the tile are neighbours in memory"
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    model: nn.Module = space["Model"](12)
    nn.init.normal_(model.norm1.weight)  # type: ignore[union-attr,arg-type]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = normal(3, 12, 9, 7) + 3
    with torch.no_grad():
        wanted = model(x)
    (result,) = harness.execute(text + RUN, [x], {"arguments": [12], "state": state})
    torch.testing.assert_close(result, wanted, atol=1e-4, rtol=1e-4)


def test_small_norms_stay_one_kernel_less():
    _, text = written("nn.GroupNorm(4, c)", n=2, c=16, h=16, w=16)
    assert "apply_kernel" not in text
