"""Rounds whose number depends on a size, made one node before the sizes are compared.

A program that doubles its reach until it has gone through a sequence has another graph for every length. As a
scan it has one, and its length can have a name.
"""

from __future__ import annotations

import re
from dataclasses import replace

from egg.expert.algebra.recurrences import RULES
from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Graph, Origin


def without_rounds(graph: Graph) -> Graph:
    """The same program, every recurrence that is computed in rounds a scan."""
    short = simplify(graph, RULES, late=())
    decaying = any(node.op == "scan" and node["fn"] == "decayed" for node in short.nodes)
    return _renumbered(short) if decaying else graph


def _renumbered(graph: Graph) -> Graph:
    """Values of one kind numbered as they come: how many there were before does not show."""
    names = {name: name for name, value in graph.values.items() if value.origin is not Origin.NODE}
    taken = set(names)
    for name in graph.values:
        stem = re.sub(r"_\d+$", "", name)
        if name not in names:
            numbered = (stem if n == 1 else f"{stem}_{n}" for n in range(1, len(graph.values) + 2))
            names[name] = next(free for free in numbered if free not in taken)
            taken.add(names[name])
    nodes = tuple(
        replace(
            node,
            inputs=tuple(name if name is None else names[name] for name in node.inputs),
            outputs=tuple(names[name] for name in node.outputs),
        )
        for node in graph.nodes
    )
    values = {names[name]: replace(value, name=names[name]) for name, value in graph.values.items()}
    return replace(graph, values=values, nodes=nodes, results=tuple(names[name] for name in graph.results))
