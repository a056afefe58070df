"""A load from one address under the mask of a tile: Triton wants a block of addresses there."""

from __future__ import annotations

from egg.expert.emit.reader import Body, Reader
from egg.expert.graph import Graph, Origin, Value
from egg.expert.index import loop_index
from egg.expert.sizes import as_size


def test_an_address_of_one_number_is_repeated_over_its_mask():
    rows = as_size(8)
    value = Value("x", (rows,), "float32", (as_size(1),), Origin.INPUT, "x")
    graph = Graph({"x": value}, (), ("x",), ("x",))
    for single, address in (
        (frozenset({"row"}), "x_ptr + row + 0 * (inside)"),
        (frozenset(), "x_ptr + row,"),
    ):
        body = Body()
        reader = Reader(graph, (), body, {"row": "inside"}, single=single)
        reader.read("x", (loop_index("row", rows),))
        assert address in body.lines[0], body.lines
