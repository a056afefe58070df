"""Rows joined by place as a pattern: what planning and fusion may ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from egg.expert.patterns.segments.shared import with_shared_lists
from egg.expert.patterns.segments.write import filing_seconds, walk_seconds, write


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
        passing = LAUNCH + bytes_moved(graph, group) / machine.memory
        filing = filing_seconds(problem.edges.value) if len(part.launches) > 1 else 0.0
        seconds = filing + max(passing, walk_seconds(problem, machine))
        return Cost(seconds, len(part.launches) * HOST_LAUNCH)

    def shared(self, parts: Sequence[Part]) -> Sequence[Part]:
        return with_shared_lists(parts)

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
