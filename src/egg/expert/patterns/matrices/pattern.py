"""Small matrices as a pattern: what planning and fusion may ask of it."""

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
from egg.expert.patterns.matrices.pytorch import cholesky_call, determinant_call, inverse_call, solve_call
from egg.expert.patterns.matrices.triton.items import FACTORED
from egg.expert.patterns.matrices.write import write
from egg.expert.patterns.triangular.pytorch import solve_call as triangular_call

STEP = 4e-9
"""Seconds that a line of a thread takes, one behind the other: some seven cycles, an estimate."""
RESIDENT = 512
"""Threads of such registers that a multiprocessor has at a time."""
REACHED = 0.5
"""Share of the bandwidth that loads reach whose neighbours are an item apart, an estimate."""
LIBRARY_MATRIX = 0.1e-6
"""Seconds of a library for each matrix of a batch: 17.6 us for a Cholesky factor of 512, on an H200."""
LIBRARY_CALL = 20e-6
"""Of a library's call of several small launches."""


def operations(graph: Graph, node: Node) -> float:
    """Some three multiplications and additions for each element and row."""
    matrix = graph.value(str(node.inputs[0]))
    columns = graph.value(str(node.inputs[1])).shape[-1].value if len(node.inputs) > 1 else 0
    rows = matrix.shape[-1].value
    return float(matrix.elements.value / rows * (rows + columns) * rows)


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    matrix = graph.value(str(node.inputs[0]))
    count = matrix.elements.value / (matrix.shape[-1].value ** 2)
    return max(stream_seconds(call_bytes(graph, node), machine), LIBRARY_CALL + count * LIBRARY_MATRIX)


class Matrices(Pattern):
    """Groups around factorisations of small matrices."""

    name = "matrices"
    anchors = (
        Anchor("cholesky", operations, _library_seconds, cholesky_call),
        Anchor("triangular_solve", operations, _library_seconds, triangular_call),
        Anchor("solve", operations, _library_seconds, solve_call),
        Anchor("inverse", operations, _library_seconds, inverse_call),
        Anchor("determinant", operations, _library_seconds, determinant_call),
    )
    computes_operands = True
    stores_by_strides = True
    takes_neighbours = True
    left = LibraryChoice(
        "the library's solver may be faster than ours at this size", "leave {} to the library", ()
    )

    def takes_whole(self, node: Node) -> bool:
        """Other factorisations, and products of small matrices."""
        return node.op in (*FACTORED, "matmul") and node.get("order") is not None

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        made = graph.value(self.anchor(group).outputs[0])
        lines = sum(text.count("\n") for text in part.kernels.values())
        items = made.elements.value / (made.shape[-1].value * made.shape[-2].value if made.rank > 1 else 1)
        waves = max(1.0, items / (RESIDENT * machine.sms))
        moved = bytes_moved(graph, group) / machine.memory / REACHED
        return Cost(LAUNCH + max(waves * lines * STEP, moved), len(part.launches) * HOST_LAUNCH)


MATRICES = Matrices()
