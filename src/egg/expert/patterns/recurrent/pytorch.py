"""A recurrent layer as PyTorch's call."""

from __future__ import annotations

import re

from egg.expert.emit.spelling import Speller, number_text
from egg.expert.graph import Node, Origin
from egg.expert.parts import spelled

FLAT_WEIGHT = re.compile(r"(?:weight|bias)_(?:ih|hh|hr)_l\d+(?:_reverse)?")
"""What PyTorch's recurrent layers call their weights."""


def recurrent_call(speller: Speller, node: Node) -> str:
    """By the layer that owns the weights, or by PyTorch's function where they belong to no layer."""
    graph, cell = speller.graph, node["cell"]
    states = 2 if cell == "lstm" else 1
    rest = list(node.inputs[1:])
    first, weights = rest[:states], rest[states:]
    read = [name for name in node.outputs if graph.consumers[name] or name in graph.results]
    results = [name if name in read else "_" for name in node.outputs]
    initial = speller.listed(first)
    initial = f"({initial})" if states > 1 else initial
    owner = _owner(speller, weights)
    if owner is not None:
        output, *last = results
        ends = last[0] if states == 1 or set(last) == {"_"} else f"({', '.join(last)})"
        given = "" if None in first else f", {initial}"
        return f"{output}, {ends} = {owner}({speller.operand(node)}{given})"
    settings = {
        "has_biases": bool(node["bias"]), "num_layers": node["layers"], "dropout": 0.0, "train": False,
        "bidirectional": bool(node["bidirectional"]), "batch_first": bool(node["batch_first"]),
    }  # fmt: skip
    keywords = ", ".join(f"{name}={number_text(value)}" for name, value in settings.items())
    given = f"{speller.operand(node)}, {initial}, [{speller.listed(weights)}], {keywords}"
    return f"{', '.join(results)} = torch.{cell}({given})"


def _owner(speller: Speller, weights: list[str | None]) -> str | None:
    """The layer that all the weights belong to, under PyTorch's own names for them."""
    owners: set[str] = set()
    for name in weights:
        value = speller.graph.value(str(name))
        owner, _, own = value.path.rpartition(".")
        if value.origin is not Origin.PARAMETER or not owner or not FLAT_WEIGHT.fullmatch(own):
            return None
        owners.add(spelled(speller.graph, value.name).removesuffix(f".{own}"))
    return owners.pop() if len(owners) == 1 else None
