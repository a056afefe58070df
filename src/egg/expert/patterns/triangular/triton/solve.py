"""Forward substitution by blocks of 16 rows, on tensor cores.

A program has some columns of the right side and goes through the rows block by block: it subtracts what the
rows before contribute, and multiplies with the inverse of the block on the diagonal. A strictly lower
triangular block ``L`` of 16 rows is nilpotent, ``L^16 = 0``, so that inverse is a finite product:
``(I + L)^-1 = (I - L)(I + L^2)(I + L^4)(I + L^8)``. Only blocks of 16 are inverted, as libraries do, so
errors grow as in substitution and not as in the inverse of the whole matrix. Products have fp32 accuracy.

Every tile is spelled as a choice between what was read and zero (one on the diagonal): a tile has its whole
shape also where its operand is the same for all rows or columns, or has only one, and what is computed beyond
the last row or column is no NaN that a product would spread.

What the rows before became is read back from the result: the columns belong to this program alone, so a
barrier of its threads is enough. An upper triangle is a lower one with rows and columns counted from the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader, address
from egg.expert.graph import Graph, Node, Value
from egg.expert.index import Atom, Expr, Index, loop_index, unflat
from egg.expert.parts import Group
from egg.expert.sizes import ONE, Size, product

BLOCK = 16
"""Rows of a block: the least that a product on tensor cores takes."""
OWN = frozenset({
    "pid", "tiles", "batch", "column", "above", "along", "start", "row", "total", "before", "inner", "known",
    "factor", "step", "inverse", "diagonal", "unit", "BLOCK_C",
})  # fmt: skip


@dataclass(frozen=True)
class System:
    """One ``triangular_solve`` node."""

    graph: Graph
    group: Group
    node: Node

    @property
    def matrix(self) -> Value:
        return self.graph.value(str(self.node.inputs[0]))

    @property
    def right(self) -> Value:
        return self.graph.value(str(self.node.inputs[1]))

    @property
    def result(self) -> Value:
        return self.graph.result(self.node)

    @property
    def batch(self) -> Size:
        return product(self.result.shape[:-2])

    @property
    def rows(self) -> Size:
        return self.result.shape[-2]

    @property
    def columns(self) -> Size:
        return self.result.shape[-1]

    def index(self, row: str, column: str, columns: Size) -> Index:
        """Rows, and columns of the matrix, are counted from the end where the triangle is the upper one."""
        lead = unflat(loop_index("batch", self.batch), self.result.shape[:-2])
        second = self._counted(column) if column != "column" else loop_index(column, columns)
        return (*lead, self._counted(row), second)

    def place(self, row: str, column: str) -> Expr:
        """Where the result has an element; rows and columns are named also where there is only one, so that
        a tile of places has its whole shape."""
        lead = unflat(loop_index("batch", self.batch), self.result.shape[:-2])
        at_column = Expr(((Atom(self.columns, column), ONE),))
        at_row = self._from_end(Expr(((Atom(self.rows, row), ONE),)))
        return address(self.result, (*lead, at_row, at_column))

    def _counted(self, name: str) -> Expr:
        return self._from_end(loop_index(name, self.rows))

    def _from_end(self, at: Expr) -> Expr:
        return at * -1 + self.rows - 1 if self.node["upper"] else at


def write_solve(system: System, kernel: Kernel, precision: str) -> None:
    """The kernel's body; ``precision``: of its products."""
    line, body, rows = kernel.body.line, kernel.body, system.rows
    masks = {name: f"({name} < {rows})" for name in ("row", "inner", "known")}
    masks["column"] = f"(column < {system.columns})"
    reader = Reader(system.graph, system.group.nodes, body, masks)
    option = f', input_precision="{precision}"'
    line("pid = tl.program_id(0)")
    line(f"tiles = tl.cdiv({system.columns}, BLOCK_C)")
    line("batch = pid // tiles")
    line("column = (pid % tiles * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]")
    line(f"above, along = tl.arange(0, {BLOCK})[:, None], tl.arange(0, {BLOCK})[None, :]")
    line("unit = tl.where(above == along, 1.0, 0.0)")
    line(f"for start in range(0, {rows}, {BLOCK}):")
    body.indent += 1
    line("row = start + above")
    inside = f"{masks['row']} & {masks['column']}"
    right = reader.read(system.right.name, system.index("row", "column", system.columns))
    line(f"total = tl.where({inside}, {right}, 0.0)")
    line(f"for before in range(0, start, {BLOCK}):")
    body.indent += 1
    line("inner = before + along")
    line("known = before + above")
    factor = reader.read(system.matrix.name, system.index("row", "inner", rows))
    line(f"factor = tl.where({masks['row']} & {masks['inner']}, {factor}, 0.0)")
    pointer = _result_pointer(system, kernel)
    earlier = f"tl.load({pointer} + {system.place('known', 'column')}, mask={masks['column']}, other=0.0)"
    line(f"total -= tl.dot(factor, {earlier}{option})")
    body.indent -= 1
    reader.forget()
    line("inner = start + along")
    step = reader.read(system.matrix.name, system.index("row", "inner", rows))
    line(f"step = tl.where((above > along) & {masks['row']}, -{step}, 0.0)")
    if not system.node["unit"]:
        diagonal = reader.read(system.matrix.name, system.index("row", "row", rows))
        line(f"diagonal = tl.where({masks['row']}, {diagonal}, 1.0)")
        line("step, total = step / diagonal, total / diagonal")
    line("inverse = unit + step")
    for _ in range(BLOCK.bit_length() - 2):
        line(f"step = tl.dot(step, step{option})")
        line(f"inverse += tl.dot(inverse, step{option})")
    line(f"total = tl.dot(inverse, total{option})")
    line(f"tl.store({pointer} + {system.place('row', 'column')}, total, mask={inside})")
    line("tl.debug_barrier()  # later blocks read these rows")
    body.indent -= 1
    kernel.add_pointers(reader.pointers)


def _result_pointer(system: System, kernel: Kernel) -> str:
    pointer = kernel.body.name(f"{system.result.name}_ptr")
    kernel.results[pointer] = system.result.name
    return pointer
