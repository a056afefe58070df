"""What an author computes twice is computed once, where that is cheaper."""

from __future__ import annotations

from collections import Counter

import pytest

from egg.core.source import Task
from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Graph
from egg.expert.reading.capture import capture
from tests.expert.captured import check, program


def graph_of(forward: str, arguments: str = "x") -> tuple[Task, Graph]:
    task = program(forward, "torch.randn(6, 40, 24)", knobs="B = 4", arguments=arguments)
    return task, simplify(capture(task))


@pytest.mark.parametrize(
    ("forward", "op"),
    [
        ("return x / x.amax(-1, keepdim=True) + torch.relu(x.amax(-1, keepdim=True))", "reduce"),
        ("return (x * 2 + 1).sum(1).exp() + (x * 2 + 1).sum(1)", "reduce"),
        ("return torch.cumsum(x, 1).relu() * torch.cumsum(x, 1)", "scan"),
        ("return (x @ x.transpose(1, 2)).exp() + (x @ x.transpose(1, 2))", "matmul"),
        ("return x[:, [3, 1, 1]] * 2 + x[:, [3, 1, 1]].exp()", "gather"),
    ],
)
def test_costly_twins_are_one(forward: str, op: str) -> None:
    task, graph = graph_of(forward)
    assert Counter(node.op for node in graph)[op] == 1
    check(graph, task)


def test_views_of_what_is_computed_are_one() -> None:
    """Two groups that read it would have it stored twice."""
    task, graph = graph_of("y = x.softmax(-1); return y.unsqueeze(1) * 2, y.unsqueeze(1).sum(2)")
    views = [node for node in graph if node.op == "view" and node.get("how") == "reshape"]
    assert len({node.inputs for node in views}) == len(views)
    check(graph, task)


def test_pointwise_twins_stay_with_their_readers() -> None:
    task, graph = graph_of("return x.sigmoid().sum(1), x.sigmoid().sum(2)")
    assert Counter(node.get("fn") for node in graph)["sigmoid"] == 2
    check(graph, task)


def test_results_stay_tensors_of_their_own() -> None:
    task, graph = graph_of("return x.sum(1), x.sum(1)")
    assert len(set(graph.results)) == 2
    check(graph, task)


def test_what_is_drawn_is_drawn_twice() -> None:
    _, graph = graph_of("return torch.rand_like(x).sum(1) + torch.rand_like(x).sum(1).exp()")
    assert Counter(node.op for node in graph)["reduce"] == 2
