"""What is left to PyTorch as a pattern: what planning and fusion may ask of it."""

from __future__ import annotations

from collections.abc import Iterable

from egg.expert.algebra.overwritten import IN_PLACE
from egg.expert.cost import HOST_CALL, Cost, Grades, Machine, call_bytes, stream_seconds
from egg.expert.graph import NUMBERS, PAIRS, Graph, Node
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import FREE, Pattern
from egg.expert.patterns.library.write import write


class Library(Pattern):
    """The last resort of every operator. Calls and times of anchors come from the patterns around them."""

    name = "library"
    fallback = True

    def __init__(self, others: Iterable[Pattern]) -> None:
        self._anchors = {
            anchor.op: (pattern.name, anchor) for pattern in others for anchor in pattern.anchors
        }
        self._calls = {op: anchor.call for op, (_, anchor) in self._anchors.items()}

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, self._calls)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        counted = [
            node for node in group.nodes if node.op not in (*FREE, "joined") and not _moves_nothing(node)
        ]
        device = sum(self.seconds(graph, node, grades, machine) for node in counted)
        return Cost(device, len(counted) * HOST_CALL)

    def seconds(self, graph: Graph, node: Node, grades: Grades, machine: Machine) -> float:
        """One operator of PyTorch: a pass over its operands and results, or what its pattern knows of it."""
        if node.op in self._anchors:
            name, anchor = self._anchors[node.op]
            return anchor.library_seconds(graph, node, grades.get(name), machine)
        return stream_seconds(call_bytes(graph, node), machine)


def _moves_nothing(node: Node) -> bool:
    """Whether a call only shows what lies in memory: complex numbers and their parts, and an update that
    stores what was computed in its place."""
    shows = node.op == "library" and node["target"] in (PAIRS, NUMBERS)
    return shows or (node.op == "update" and bool(node.get(IN_PLACE)))
