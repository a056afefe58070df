"""Bags of embeddings as gathers with sums, and lists of numbers as literals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import graph_of
from egg.expert.graph import LITERAL
from tests.expert.elsewhere import normal, program, run, written

BAGS = "self.bags = nn.EmbeddingBag(rows, c, mode='{mode}')"
PLACES = "places = torch.randint(0, rows, (n, k))"
SIZES = {"n": 64, "rows": 500, "c": 64, "k": 7}


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_one_size_are_gathered_and_summed_in_one_kernel(mode: str) -> None:
    layers = BAGS.format(mode=mode)
    source = program("return torch.relu(self.bags(places))", PLACES, layers, "rows, c", **SIZES)
    text = written(source)
    assert "embedding_bag" not in text[text.index("class ModelNew") :]
    assert text.count("@triton.jit") == 1
    places = torch.randint(0, 30, (5, 3))
    made, wanted = run(source, [30, 6], [places])
    torch.testing.assert_close(made[0].double(), wanted[0])


APART = {
    "a maximum": ("self.bags = nn.EmbeddingBag(rows, c, mode='max')", PLACES, "self.bags(places)"),
    "sizes of their own": (
        BAGS.format(mode="sum"),
        "places = torch.randint(0, rows, (n,)); starts = torch.arange(0, n, 4)",
        "self.bags(places, starts)",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_other_bags_are_left_to_the_library(name: str) -> None:
    layers, given, call = APART[name]
    source = program(f"return torch.relu({call})", given, layers, "rows, c", **SIZES)
    nodes = graph_of(Task("program", source)).nodes
    assert any("embedding_bag" in str(node.get("target", "")) for node in nodes)


def targets(count: int) -> list[Any]:
    forward = f"listed = torch.tensor(list(range({count}))[::-1])\nreturn x[:, listed] * self.scale"
    layers = "self.scale = nn.Parameter(torch.full((1,), 2.0))"
    source = program(forward, "x = torch.randn(n, c)", layers, n=32, c=64)
    assert "functools.cache" not in written(source), "a module keeps its tensors itself"
    made, wanted = run(source, [], [normal(5, 64)])
    torch.testing.assert_close(made[0].double(), wanted[0])
    return [node.get("target") for node in graph_of(Task("program", source)).nodes]


def test_many_numbers_are_a_literal_and_few_stand_in_the_kernel() -> None:
    assert targets(20).count(LITERAL) == 1
    assert LITERAL not in targets(4)
