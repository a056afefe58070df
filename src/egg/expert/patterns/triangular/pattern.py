"""Triangular systems as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from egg.expert.cost import (
    HOST_LAUNCH,
    LAUNCH,
    Cost,
    Grades,
    Machine,
    bytes_moved,
    call_bytes,
    stream_seconds,
)
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import Anchor, LibraryChoice, Pattern
from egg.expert.patterns.triangular.pytorch import solve_call
from egg.expert.patterns.triangular.triton.solve import BLOCK
from egg.expert.patterns.triangular.write import write

BLOCK_STEP = 2.5e-6
"""Seconds that a program takes for a block of rows, an estimate: a dozen small products that wait for each
other."""
EARLIER_BLOCK = 0.3e-6
"""The same for each block of rows before it."""
PROGRAMS_EACH = 5
"""Programs that a multiprocessor works on at a time."""
LIBRARY_MATRIX = 0.8e-6
"""Seconds of a library for each matrix of a batch: 0.42 ms for 512 of 64 rows, on an H200."""


def operations(graph: Graph, node: Node) -> float:
    made = graph.value(node.outputs[0])
    return float(made.elements.value * made.shape[-2].value)


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    made = graph.value(node.outputs[0])
    matrices = made.elements.value / (made.shape[-1].value * made.shape[-2].value)
    return max(stream_seconds(call_bytes(graph, node), machine), matrices * LIBRARY_MATRIX)


class Triangular(Pattern):
    name = "triangular"
    anchors = (Anchor("triangular_solve", operations, _library_seconds, solve_call),)
    left = LibraryChoice(
        "the library's solver may be faster than ours at this size",
        "leave {} to the library",
        (),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        node = self.anchor(group)
        made = graph.value(node.outputs[0])
        rows, columns = made.shape[-2].value, made.shape[-1].value
        blocks, tiles = -(-rows // BLOCK), -(-columns // 64)
        one = blocks * BLOCK_STEP + blocks * (blocks - 1) / 2 * EARLIER_BLOCK
        programs = made.elements.value / (rows * columns) * tiles
        waves = max(1.0, programs / (PROGRAMS_EACH * machine.sms))
        seconds = LAUNCH + max(waves * one, bytes_moved(graph, group) / machine.memory)
        return Cost(seconds, len(part.launches) * HOST_LAUNCH)


TRIANGULAR = Triangular()
