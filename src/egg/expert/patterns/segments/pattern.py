"""Rows joined by place as a pattern: what planning and fusion may ask of it."""

from __future__ import annotations

from collections.abc import Iterator

from egg.core.bottleneck import Bottleneck
from egg.core.stage import Category
from egg.expert.cost import (
    HOST_LAUNCH,
    LAUNCH,
    Cost,
    Grades,
    Machine,
    atomic_seconds,
    bytes_moved,
    call_bytes,
    stream_seconds,
)
from egg.expert.graph import Graph, Node
from egg.expert.moves import Without
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import Alternative, Anchor, Pattern
from egg.expert.patterns.segments.problem import Problem, root_of
from egg.expert.patterns.segments.pytorch import scatter_call
from egg.expert.patterns.segments.write import filing_seconds, write

GATHERED = 1.5
"""How many times faster than memory rows are gathered, of which the cache holds a part: an estimate."""


def _operations(graph: Graph, node: Node) -> float:
    return float(graph.value(str(node.inputs[0])).elements.value)


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    return max(stream_seconds(call_bytes(graph, node), machine), atomic_seconds(graph, [node], machine))


class Segments(Pattern):
    """Groups around a scatter of long rows. What it does not take stays a pass over memory, with atomics."""

    name = "segments"
    anchors = (Anchor("scatter", _operations, _library_seconds, scatter_call),)
    computes_operands = True
    leaves_passes = True
    takes_operands = True
    keeps = -1

    def anchor(self, group: Group) -> Node:
        return root_of(group)

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        """Rows are gathered one by one, the rest passes by once."""
        problem = Problem(graph, group)
        rows = problem.edges.value * problem.features.value * 4
        moved = max(bytes_moved(graph, group), rows / GATHERED) / machine.memory
        seconds = filing_seconds(problem.edges.value) + LAUNCH + moved
        return Cost(seconds, len(part.launches) * HOST_LAUNCH)

    def alternatives(self, group: Group, part: Part, found: Bottleneck | None) -> Iterator[Alternative]:
        """Atomics, where few rows meet or places are few."""
        yield Alternative(
            Category.ALGORITHM_REPLACEMENT,
            "filing rows under their places takes longer than it saves",
            f"{group.name} adds its rows by atomics",
            (Without(self.name, self.anchor(group).output),),
            "no lists and fewer launches, an atomic for every element",
            ("scatter-to-gather",),
        )


SEGMENTS = Segments()
