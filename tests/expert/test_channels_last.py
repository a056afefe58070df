"""Channels-last programs: values lie as the reference has them, and nothing is turned around in between."""

from __future__ import annotations

import re

import torch
from torch import nn

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.cost import Machine
from egg.expert.moves import Recipe, Without
from egg.expert.patterns.convolution.cost import library_seconds
from egg.expert.reading.capture import capture_once
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program

LAYERS = """
self.conv1 = nn.Conv2d(c, out, 3, padding=1, bias=False)
self.bn1 = nn.BatchNorm2d(out)
self.conv2 = nn.Conv2d(out, c, 1, bias=False)
self.bn2 = nn.BatchNorm2d(c)
self.to(torch.float16).eval()
self.to(memory_format=torch.channels_last)
"""
FORWARD = """
y = torch.relu(self.bn1(self.conv1(x)))
return torch.relu(self.bn2(self.conv2(y)) + x)
"""


def block(layout: str) -> str:
    made = f"torch.randn(n, c, h, h, dtype=torch.float16).to(memory_format=torch.{layout})"
    return program(FORWARD, f"x = {made}", LAYERS, "c, out", n=16, c=64, out=256, h=28)


def written(recipe: Recipe) -> str:
    task = Task("block", block("channels_last"))
    return kernel_file(task, graph_of(task), recipe, resolve("H200")).source


def test_the_layout_goes_through_every_layer():
    graph = capture_once(Task("block", block("channels_last")))
    images = [value for value in graph.values.values() if value.rank == 4 and value.origin == "node"]
    assert len(images) == 7
    assert all(value.stride[1].value == 1 for value in images)


def test_library_calls_and_kernels_keep_it():
    left, whole = written(Recipe().after(Without("convolution"))), written(Recipe())
    assert left.count("nn.functional.conv2d(") == 2
    x = normal(3, 5, 6, 6, dtype=torch.float16).to(memory_format=torch.channels_last)
    space: dict[str, type[nn.Module]] = {}
    exec(compile(block("channels_last"), "task", "exec"), space)
    model = space["Model"](5, 7)
    with torch.no_grad():
        wanted = model(x)
    for text in (left, whole):
        body = text[text.index("class ModelNew") :]
        turned = re.findall(r"(?<!permute\(0, 2, 3, 1\))\.contiguous\(\)", body)
        assert not turned, body
        parameters = {"arguments": [5, 7], "state": dict(model.state_dict())}
        (made,) = harness.execute(text + RUN, [x], parameters)
        assert made.stride() == wanted.stride()
        torch.testing.assert_close(made, wanted, atol=5e-3, rtol=5e-3)


def test_the_library_turns_nothing_that_lies_so_already():
    machine = Machine.of(resolve("H200"))
    seconds = {}
    for layout in ("channels_last", "contiguous_format"):
        graph = capture_once(Task("block", block(layout)))
        first = next(node for node in graph.nodes if node.op == "conv")
        seconds[layout] = library_seconds(graph, first, None, machine)
    assert seconds["channels_last"] < seconds["contiguous_format"]
