"""Attention of one query or one column, and of heads that share keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from egg.core.source import Task
from egg.expert.algebra.grouped_heads import by_the_library
from egg.expert.algebra.simplify import simplify
from egg.expert.reading.capture import capture_once
from egg.expert.reading.least import heads_within
from egg.expert.sizes import Size, Symbol
from tests.expert import elsewhere


@pytest.mark.parametrize(("queries", "width"), [("1", "d"), ("n", "1")])
def test_a_single_query_or_a_single_column_is_stored_through_a_block(queries, width):
    """The address of a tile has no index along a dimension of one element."""
    shapes = {"q": f"b, h, {queries}, d", "k": "b, h, n, d", "v": f"b, h, n, {width}"}
    inputs = ";".join(f"{name} = torch.randn({shape}, dtype=torch.float16)" for name, shape in shapes.items())
    source = elsewhere.program(
        "return F.scaled_dot_product_attention(q, k, v)", inputs, b=4, h=8, n=512, d=64
    )
    sizes = {"b": 2, "h": 2, "n": 9, "d": 16, "1": 1}
    given = [[sizes[size] for size in shape.split(", ")] for shape in shapes.values()]
    elsewhere.check(
        source, [], [elsewhere.normal(*shape, dtype=torch.float16) for shape in given], digits=5e-3
    )


def test_heads_under_different_names_must_agree():
    """How many heads share a key is a number of the kernel: no module with another may get an answer."""
    source = elsewhere.program(
        "return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)",
        "q = torch.randn(2, 16, 64, 32);k = torch.randn(2, 4, 64, 32)",
    )
    graph = capture_once(Task("grouped", source))
    assert heads_within(graph) == ()
    (node,) = [node for node in graph if node.op == "attention"]
    named = {
        node.inputs[0]: Size(1, (Symbol("heads", (16,)),)),
        node.inputs[1]: Size(4, (Symbol("kv", (4,)),)),
    }
    values = {
        name: replace(value, shape=(value.shape[0], named[name], *value.shape[2:]))
        if name in named
        else value
        for name, value in graph.values.items()
    }
    pairs = heads_within(replace(graph, values=values))
    assert ("heads", "kv * 4") in pairs
    assert ("kv * 4", "heads") in pairs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("q", "kv"), [("b, h, n, d", "b, 1, n, d"), ("1, h, n, d", "b, h, n, d"), ("b, h, 1, d", "b, 1, n, d")]
)
def test_heads_that_broadcast_are_one_kernel(q: str, kv: str, causal: bool):
    """Multi-query attention, and one table of queries for the batch: PyTorch computes both in pieces."""
    inputs = ";".join(
        f"{name} = torch.randn({shape}, dtype=torch.float16)"
        for name, shape in (("q", q), ("k", kv), ("v", kv))
    )
    source = elsewhere.program(
        f"return F.scaled_dot_product_attention(q, k, v, is_causal={causal}) * 2",
        inputs,
        b=4,
        h=8,
        n=512,
        d=64,
    )
    assert "scaled_dot_product_attention(" not in elsewhere.written(source).split("class ModelNew")[1]
    sizes = {"b": 2, "h": 3, "n": 9, "d": 16, "1": 1}
    given = [[sizes[size] for size in shape.split(", ")] for shape in (q, kv, kv)]
    elsewhere.check(
        source, [], [elsewhere.normal(*shape, dtype=torch.float16) for shape in given], digits=5e-3
    )


def test_a_library_is_told_of_the_one_head_that_all_queries_read():
    source = elsewhere.program(
        "return F.scaled_dot_product_attention(q, k, v)",
        "q = torch.randn(2, 16, 64, 32);k = torch.randn(2, 1, 64, 32);v = torch.randn(2, 1, 64, 32)",
    )
    graph = by_the_library(simplify(capture_once(Task("one head", source))), lambda name: True)
    (node,) = [node for node in graph if node.op == "attention"]
    assert node["grouped"]
    assert [graph.value(str(name)).shape[1].value for name in node.inputs[:3]] == [16, 1, 1]
