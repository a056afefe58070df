"""Sizes that were in one order at every capture, in the other order: what was left out then is needed now."""

from __future__ import annotations

import pytest

from egg.expert.fusion.extremes import LARGE, widened
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import Size, named
from tests.expert.elsewhere import check, normal, program

FIRST_OF_BOTH = program(
    "return torch.relu(torch.cat([x, y], dim=1)[:, :64])",
    "x = torch.randn(batch_size, left);y = torch.randn(batch_size, right)",
    batch_size=16, left=512, right=256,
)  # fmt: skip
REGROUPED = program(
    "return torch.relu(x.reshape(x.shape[1], x.shape[0], 4).permute(1, 0, 2) + 0)",
    "x = torch.randn(batch_size, length, 4)",
    batch_size=16, length=512,
)  # fmt: skip


@pytest.mark.parametrize("left", [512, 32, 1])
def test_a_piece_that_no_capture_reached_is_read(left: int) -> None:
    check(FIRST_OF_BOTH, (), [normal(3, left), normal(3, 70)])


@pytest.mark.parametrize(("batch", "length"), [(3, 40), (40, 3), (7, 7), (1, 5), (5, 1)])
def test_quotients_hold_whichever_size_is_larger(batch: int, length: int) -> None:
    check(REGROUPED, (), [normal(batch, length, 4)])


def graph() -> Graph:
    n, c, out = named("n", (8, 9)), named("c", (64, 64)), named("out", (31, 31))
    x = Value("x", (n, c), "float32", contiguous_stride((n, c)), Origin.INPUT, "x")
    w = Value("w", (c,), "float32", (Size(1),), Origin.PARAMETER, "w")
    y = Value("y", (n, out), "float32", contiguous_stride((n, out)))
    nodes = (Node("library", ("x", "w"), ("y",), {"target": "torch.f", "arguments": (out,), "keywords": {}}),)
    texts = {"n": "x.shape[0]", "c": "x.shape[1]", "out": "(c - 3) // 2 + 1"}
    return Graph({"x": x, "w": w, "y": y}, nodes, ("x",), ("y",), "tensor", texts)


def test_only_what_the_caller_chooses_goes_to_its_ends() -> None:
    wider = widened(graph())
    n, c = wider.value("x").shape
    assert n.values == (8, 9, 1, LARGE)
    assert c.values == (64, 64, 64, 64)  # the module's
    assert wider.nodes[0]["arguments"][0].values == (31, 31, 31, 31)


def test_what_follows_by_a_formula_follows_and_is_never_nothing() -> None:
    values = {name: value for name, value in graph().values.items() if name != "w"}
    node = Node("library", ("x",), ("y",), {"target": "torch.f", "arguments": (), "keywords": {}})
    texts = {"n": "x.shape[0]", "c": "x.shape[1]", "out": "(c - 3) // 2 + 1"}
    wider = widened(Graph(values, (node,), ("x",), ("y",), "tensor", texts))
    (_, c), (_, out) = wider.value("x").shape, wider.value("y").shape
    assert c.values == (64, 64, 64, 64, 8, LARGE)
    assert out.values == (31, 31, 31, 31, 3, (LARGE - 3) // 2 + 1)
