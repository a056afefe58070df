"""Where a tile of a product lies: what its kernel calls the loops, and lines that place rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel, is_large
from egg.expert.graph import Value
from egg.expert.index import Expr, Index, loop_index
from egg.expert.patterns.product.groups import Groups
from egg.expert.patterns.product.problem import Problem, Span
from egg.expert.sizes import Size

Loops = tuple[Expr, Expr, Expr]


@dataclass
class Place:
    """Names in one kernel. Operands have indices of their own: those may be clamped, a result's are not."""

    problem: Problem
    kernel: Kernel
    groups: Groups | None = None
    """Groups of columns that the tail needs whole."""
    turned: bool = False
    """The tile's first axis are the columns (few rows)."""

    def __post_init__(self) -> None:
        body = self.kernel.body
        names = ("batch", "row", "column", "left_row", "right_column", "left_k", "right_k")
        self.batch, self.row, self.column, self.left_row, self.right_column, self.left_k, self.right_k = (
            body.name(name) for name in names
        )
        self.slot, self.right_slot = body.name("slot"), body.name("right_slot")
        if self.groups is not None:
            self.kernel.meta |= self.groups.meta()
        graph, group = self.problem.graph, self.problem.group
        self.wide = any(is_large(graph.value(name)) for name in (*group.reads(graph), *group.writes(graph)))

    @property
    def cast(self) -> str:
        """To indices of 64 bits, where a tensor needs them."""
        return ".to(tl.int64)" if self.wide else ""

    @property
    def loops(self) -> Loops:
        """Indices of the result."""
        problem = self.problem
        return (
            loop_index(self.batch, problem.batch),
            loop_index(self.row, problem.rows),
            loop_index(self.column, problem.columns),
        )

    @property
    def masks(self) -> dict[str, str]:
        problem = self.problem
        inside = f"({self.column} < {problem.columns})"
        return {
            self.row: f"({self.row} < {problem.rows})",
            self.column: inside if self.groups is None else self.groups.mask(self.column, self.slot),
        }

    @property
    def scattered(self) -> bool:
        """Whether columns do not lie in the tile one beside the other."""
        return self.groups is not None and not self.groups.even

    def operand_index(self, operand: Value, span: Span | None = None) -> Index:
        """Within a span of the summed dimension; else anywhere along it."""
        problem = self.problem
        k = self.left_k if operand is problem.left else self.right_k
        names = {"batch": self.batch, "row": self.left_row, "column": self.right_column, "k": k}
        return problem.operand_index(operand, span or problem.whole, names)

    # -- lines -------------------------------------------------------------------------------------

    def row_line(self) -> str:
        across = "[None, :]" if self.turned else "[:, None]"
        return f"{self.row} = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)){self.cast}{across}"

    def column_lines(self, name: str, slot: str, shape: str) -> list[str]:
        places = "tile_n * BLOCK_N + tl.arange(0, BLOCK_N)"
        if self.groups is None:
            return [f"{name} = ({places}){shape}"]
        return self.groups.column_lines(name, slot, places, shape)

    def coordinate(self, start: Expr, tile: str) -> str:
        """Of a tile that the copy engine brings, which takes 32-bit coordinates."""
        text = plus(start, tile)
        return f"({text}).to(tl.int32)" if self.wide and not text.startswith("tile") else text


def plus(start: Expr, text: str) -> str:
    return text if start == Expr() else f"{start} + {text}"


def part_span(depth: Size) -> str:
    """The line that says how much of the summed dimension a part has: whole blocks."""
    blocks = f"({depth} + BLOCK_K - 1) // BLOCK_K"
    return f"part_span: tl.constexpr = ({blocks} + SPLIT_K - 1) // SPLIT_K * BLOCK_K"
