"""Attention as a pattern: what planning and fusion may ask of it."""

from __future__ import annotations

from egg.expert.cost import (
    HOST_LAUNCH,
    LAUNCH,
    Cost,
    Grades,
    Machine,
    bytes_moved,
    grade_of,
    library_product_seconds,
    packing_seconds,
    product_rate,
)
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import Anchor, LibraryChoice, Pattern
from egg.expert.patterns.attention.pytorch import attention_call
from egg.expert.patterns.attention.write import write


def operations(graph: Graph, node: Node) -> float:
    made, queries, keys = (graph.value(str(name)) for name in (node.outputs[0], *node.inputs[:2]))
    whole = 2.0 * (queries.elements.value + made.elements.value) * keys.shape[-2].value
    return whole / 2 if node.get("causal") else whole


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    return library_product_seconds(graph, node, operations(graph, node), "attention", machine)


class Attention(Pattern):
    name = "attention"
    anchors = (Anchor("attention", operations, _library_seconds, attention_call),)
    computes_operands = True
    keeps = 1
    left = LibraryChoice(
        "the library's attention may be faster than ours at this shape and dtype",
        "leave {} to the library",
        ("flash-attention",),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        anchor = next(node for node in group.nodes if node.op == "attention")
        exact = grade_of(graph, anchor, grades.get(self.name, self.grade))
        count = len(part.launches)
        rate = product_rate(self.name, exact, part, machine)
        seconds = count * LAUNCH + packing_seconds(graph, anchor, part, exact, machine)
        seconds += max(bytes_moved(graph, group) / machine.memory, operations(graph, anchor) / rate)
        return Cost(seconds, count * HOST_LAUNCH)


ATTENTION = Attention()
