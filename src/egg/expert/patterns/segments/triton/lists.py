"""Rows filed under their places: one list for each place of the result, of any length, all in one array.

A counting sort without the order between places: one integer atomic for each row counts the places and ranks
the rows of each; a pass over the places gives every list its stretch of the array (a running sum within a
program, one atomic for a program's total, so no program waits for another); the last pass puts each row into
its list. Besides numbers of rows, lists hold positions that the rows are gathered from: who walks a list then
need not look them up one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from egg.expert.emit.kernel import Kernel
from egg.expert.graph import Value
from egg.expert.index import Expr, loop_index
from egg.expert.patterns.loops.triton.reader import LoopBody, LoopReader
from egg.expert.patterns.segments.problem import EDGE, NODE, Problem

OWN = frozenset(
    {NODE, EDGE, "inside", "rank", "slot", "count", "before", "total", "base", "position", "count_ptr",
     "rank_ptr", "first_ptr", "edges_ptr", "BLOCK", "PLACES"}
)  # fmt: skip


@dataclass(frozen=True)
class Tensors:
    """What the host calls the tensors of the lists."""

    stem: str

    @property
    def counts(self) -> str:
        """Rows of each place; behind them the rows that have a stretch already."""
        return f"{self.stem}_counts"

    @property
    def ranks(self) -> str:
        """Of each row in its list."""
        return f"{self.stem}_ranks"

    @property
    def first(self) -> str:
        """Where each list begins."""
        return f"{self.stem}_first"

    @property
    def edges(self) -> str:
        """The lists: numbers of rows."""
        return f"{self.stem}_edges"

    def filed(self, which: int) -> str:
        """The lists: positions that rows are gathered from."""
        return f"{self.stem}_{self._sources(which)}"

    def pointer(self, which: int) -> str:
        """What kernels call it: the same whatever the stem, so that kernels are shared."""
        return f"{self._sources(which)}_ptr"

    @staticmethod
    def _sources(which: int) -> str:
        return "sources" + (f"_{which + 1}" if which else "")


def count_kernel(problem: Problem, name: str, block: str, tensors: Tensors) -> Kernel:
    """Counts the rows of each place, and ranks them."""
    doc = "Count the rows of each place by one integer atomic a row, which ranks them in their lists."
    kernel, _ = _over_rows(problem, name, doc, block)
    line = kernel.body.line
    line(f'rank = tl.atomic_add(count_ptr + {NODE}, 1, mask=inside, sem="relaxed")')
    line(f"tl.store(rank_ptr + {EDGE}, rank, mask=inside)")
    kernel.results |= {"count_ptr": tensors.counts, "rank_ptr": tensors.ranks}
    return kernel


def stretch_kernel(problem: Problem, name: str, block: str, tensors: Tensors) -> Kernel:
    """Gives every list its stretch of the array."""
    doc = "Give the list of each place its stretch; stretches of programs lie in any order."
    kernel = Kernel(name, doc, problem.graph, OWN, meta={"PLACES": block})
    nodes = problem.nodes.code()
    for text in (
        f"{NODE} = tl.program_id(0) * PLACES + tl.arange(0, PLACES)",
        f"inside = {NODE} < {nodes}",
        f"count = tl.load(count_ptr + {NODE}, mask=inside, other=0)",
        "before = tl.cumsum(count, axis=0) - count",
        "total = tl.sum(count, axis=0)",
        f'base = tl.atomic_add(count_ptr + {nodes}, total, sem="relaxed")',
        f"tl.store(first_ptr + {NODE}, base + before, mask=inside)",
    ):
        kernel.body.line(text)
    kernel.results |= {"count_ptr": tensors.counts, "first_ptr": tensors.first}
    return kernel


def fill_kernel(
    problem: Problem, name: str, block: str, tensors: Tensors, lists: Mapping[str, Value | None]
) -> Kernel:
    """Puts rows into their lists: by tensor, the position that is filed, or the row's number (``None``)."""
    doc = "Put each row into the list of its place."
    kernel, reader = _over_rows(problem, name, doc, block)
    line = kernel.body.line
    line(f"slot = tl.load(first_ptr + {NODE}, mask=inside, other=0)")
    line(f"slot += tl.load(rank_ptr + {EDGE}, mask=inside, other=0)")
    kernel.operands |= {"first_ptr": tensors.first, "rank_ptr": tensors.ranks}
    which = count()
    for tensor, value in lists.items():
        text = EDGE if value is None else _vector(reader.read(value.name, _of_row(problem, value)))
        pointer = "edges_ptr" if value is None else kernel.body.name(tensors.pointer(next(which)))
        line(f"tl.store({pointer} + slot, {text}, mask=inside)")
        kernel.results[pointer] = tensor
    kernel.add_pointers(reader.pointers)
    return kernel


def _over_rows(problem: Problem, name: str, doc: str, block: str) -> tuple[Kernel, LoopReader]:
    """A kernel with a block of rows for each program, as far as their places are read."""
    kernel = Kernel(name, doc, problem.graph, OWN, body=LoopBody(), meta={"BLOCK": block})
    assert isinstance(kernel.body, LoopBody)
    line = kernel.body.line
    line(f"{EDGE} = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
    line(f"inside = {EDGE} < {problem.edges.code()}")
    reader = LoopReader(problem.graph, problem.group.nodes, kernel.body, {EDGE: "inside"})
    reader.axes = reader.outside = frozenset({EDGE})
    text = reader.read(problem.index.name, _of_row(problem, problem.index))
    line(f"{NODE} = {_vector(text)}")
    kernel.add_pointers(reader.pointers)
    return kernel, reader


def _of_row(problem: Problem, value: Value) -> tuple[Expr, ...]:
    """The index of a row's own number in a value that has one for each."""
    rows = loop_index(EDGE, problem.edges)
    return tuple(rows if size == problem.edges else Expr() for size in value.shape)


def _vector(text: str) -> str:
    """A number for each row, also where one number serves all of them."""
    return f"tl.zeros((BLOCK,), tl.int32) + {text if text.isidentifier() else f'({text})'}"
