"""A product with a vector, or with very few rows or columns: one pass over the larger operand.

Two operations per element loaded leave nothing for tensor cores to do; the bound is one read of the matrix.
A program holds a block of its rows and runs along the summed dimension, multiplying element by element into
one accumulator per lane; lanes are added up once, behind the loop. Where the matrix has too few rows to fill
the GPU, the summed dimension is worked on in parts that a second kernel adds up.
"""

from __future__ import annotations

from egg.expert.emit.kernel import Kernel, is_large
from egg.expert.emit.reader import Reader
from egg.expert.index import Expr, Index, loop_index
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import NARROW
from egg.expert.patterns.product.triton.place import part_span
from egg.expert.patterns.product.triton.tail import Frame
from egg.expert.sizes import ONE, Size

ALL = "tl.arange(0, WIDTH)"


class Stream:
    """The kernel that reads the larger operand once."""

    def __init__(self, problem: Problem, kernel: Kernel, split: bool) -> None:
        self.problem, self.kernel, self.split = problem, kernel, split
        self.by_rows = problem.rows.value >= problem.columns.value
        self.long: Size = problem.rows if self.by_rows else problem.columns
        self.short: Size = problem.columns if self.by_rows else problem.rows
        names = ("batch", "row", "column", "k", "long_at", "short_at")
        self.batch, self.row, self.column, self.k, self.long_at, self.short_at = (
            kernel.body.name(name) for name in names
        )
        names = (*problem.group.reads(problem.graph), *problem.group.writes(problem.graph))
        self.cast = ".to(tl.int64)" if any(is_large(problem.graph.value(name)) for name in names) else ""

    @property
    def along(self) -> bool:
        """Whether the rows of the larger operand are contiguous, not the summed dimension."""
        operand = self.problem.left if self.by_rows else self.problem.right
        return self.problem.contiguous_along(operand.name, self._index(self.by_rows), self.long_at)

    def _index(self, left: bool) -> Index:
        problem = self.problem
        batch, k = loop_index(self.batch, problem.batch), loop_index(self.k, problem.depth)
        long, short = loop_index(self.long_at, self.long), loop_index(self.short_at, self.short)
        if left:
            return problem.left_index(batch, long if self.by_rows else short, k)
        return problem.right_index(batch, k, short if self.by_rows else long)

    @property
    def blocks(self) -> str:
        """How many programs share the smaller operand, as the host says it; none where one has it all."""
        return f"triton.cdiv({self.short}, {self.width})" if self.short.factors else ""

    @property
    def width(self) -> str:
        """Rows of the smaller operand that a program has: those of the captured call, and not many more."""
        whole = f"triton.next_power_of_2({self.short})"
        return f"min({whole}, {NARROW})" if self.short.factors and self.short.value <= NARROW else whole

    @property
    def _places(self) -> str:
        """Of the smaller operand."""
        return f"tl.program_id(2) * WIDTH + {ALL}" if self.short.factors else ALL

    @property
    def _bracketed(self) -> str:
        return f"({self._places})" if " + " in self._places else self._places

    def place(self) -> None:
        problem, line = self.problem, self.kernel.body.line
        line("pid = tl.program_id(0)")
        if problem.batch != ONE:
            line(f"blocks = tl.cdiv({self.long}, ROWS)")
            line(f"{self.batch} = (pid // blocks){self.cast}")
            line("pid = pid % blocks")
        self._low, self._high = "0", str(problem.depth)
        if self.split:
            line("part = tl.program_id(1)")
            depth = problem.depth
            line(part_span(depth))
            line("k_low = part * part_span")
            line(f"k_high = tl.minimum(k_low + part_span, {depth})")
            self._low, self._high = "k_low", "k_high"

    def loop(self) -> str:
        """Returns the name of the finished tile: rows of the larger operand by those of the smaller."""
        body, flat = self.kernel.body, self.short == ONE
        first, second, last = ("[:, None]", "", "[None, :]") if flat else (
            "[:, None, None]", "[None, :, None]", "[None, None, :]"
        )  # fmt: skip
        whole = "pid * ROWS + tl.arange(0, ROWS)"
        if self.along:  # a clamped index would hide that neighbours are neighbours
            body.line(f"{self.long_at} = ({whole}){self.cast}{first}")
        else:
            body.line(f"{self.long_at} = tl.minimum({whole}, {self.long} - 1){self.cast}{first}")
        if not flat:
            body.line(f"{self.short_at} = tl.minimum({self._places}, {self.short} - 1){second}")
        shape = "(ROWS, BLOCK_K)" if flat else "(ROWS, WIDTH, BLOCK_K)"
        body.line(f"sums = tl.zeros({shape}, tl.float32)")
        body.line(f"for k_start in range({self._low}, {self._high}, BLOCK_K):")
        body.indent += 1
        body.line(f"{self.k} = k_start + tl.arange(0, BLOCK_K){last}")
        reader = self._reader()
        left, right = (self._operand(reader, side) for side in (True, False))
        body.line(f"sums += {left} * {right}")
        self.kernel.add_pointers(reader.pointers)
        body.indent -= 1
        body.line(f"total = tl.sum(sums, axis={'1, keep_dims=True' if flat else '2'})")
        return "total"

    def _reader(self) -> Reader:
        problem = self.problem
        operand = problem.left if self.by_rows else problem.right
        stored = problem.stored(operand.name, self._index(self.by_rows))
        hints = {stored[0].name: 'eviction_policy="evict_first"'} if stored is not None else {}
        masks = {self.k: f"({self.k} < {self._high})"}
        if self.along:
            masks[self.long_at] = f"({self.long_at} < {self.long})"
        nodes, scalars = problem.group.nodes, frozenset({self.batch})
        return Reader(problem.graph, nodes, self.kernel.body, masks, hints=hints, scalars=scalars)

    def _operand(self, reader: Reader, left: bool) -> str:
        operand = self.problem.left if left else self.problem.right
        index = self._index(left)
        text = reader.read(operand.name, index)
        if self.problem.stored(operand.name, index) is None:
            text = self.kernel.body.let("inside_k", f"tl.where({reader.masks[self.k]}, {text}, 0.0)")
        return text

    def frame(self) -> tuple[Frame, dict[str, str]]:
        problem, line = self.problem, self.kernel.body.line
        long, short = (self.row, self.column) if self.by_rows else (self.column, self.row)
        line(f"{long} = (pid * ROWS + tl.arange(0, ROWS)){self.cast}[:, None]")
        masks = {long: f"({long} < {self.long})"}
        if self.short != ONE:
            line(f"{short} = {self._bracketed}[None, :]")
            masks[short] = f"({short} < {self.short})"
        batch, row, column = (
            loop_index(self.batch, problem.batch),
            loop_index(self.row, problem.rows),
            loop_index(self.column, problem.columns),
        )
        anchor: tuple[Expr, ...] = problem.result_index(batch, row, column)
        axis = 1 if self.by_rows else 0
        return Frame(row, column, anchor, axis, ("ROWS", "WIDTH"), alone=long), masks
