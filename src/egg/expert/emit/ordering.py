"""Which selections are made in registers, and how: by numbers that fusion and kernels agree on."""

from __future__ import annotations

from egg.expert.graph import Graph, Node

FEW = 32
"""Elements that are taken one after the other; more of them go through a network."""
LONGEST, LONGEST_NETWORK = 8192, 4096
"""Elements of a row that a program holds, by either method."""


def in_turns(graph: Graph, node: Node) -> bool:
    """Whether a selection takes elements one after the other, rather than by a network."""
    return not node["whole"] and graph.value(node.outputs[0]).shape[node["dim"]].value <= FEW


def longest(graph: Graph, node: Node) -> int:
    """Elements of a row that a kernel can select from."""
    return LONGEST if in_turns(graph, node) else LONGEST_NETWORK
