"""Names for dimensions of inputs that follow no integer of the source: by what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from egg.expert.graph import Graph, Origin, Value

Row = tuple[Any, ...]
SPATIAL = {3: ("length",), 4: ("height", "width"), 5: ("depth", "height", "width")}
"""What the last dimensions of an image are called, by its rank."""


def input_names(graphs: Sequence[Graph]) -> dict[Row, str]:
    """By row of values, one for each capture: a batch, a length, the sides of an image."""
    first = graphs[0]
    inputs = [first.value(name) for name in first.arguments if name is not None]
    kinds = {node.op for node in first.nodes}
    found: dict[Row, str] = {}

    def call(value: Value, dim: int, name: str) -> None:
        row = tuple(graph.values[value.name].shape[dim].value for graph in graphs)
        if len(set(row)) > 1 and name not in found.values():
            found.setdefault(row, name)

    for value in inputs[:1]:
        held = any(v.origin is Origin.PARAMETER for v in first.values.values())
        if value.rank >= 3 or (value.rank == 2 and held):
            call(value, 0, "batch_size")
        elif value.rank == 2:
            call(value, 0, "rows")
    for value in inputs:
        if kinds & {"conv", "pool", "resample"} and value.rank in SPATIAL:
            words = SPATIAL[value.rank]
            for place, word in enumerate(words):
                call(value, value.rank - len(words) + place, word)
        elif value.rank == 3:
            call(value, 1, "length")
    return found
