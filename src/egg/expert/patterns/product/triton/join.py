"""Second passes of a product: adding up the parts of the summed dimension, and joining parts of a row.

Both exist so that no atomics are needed: every program of the first kernel writes what it has to a place of
its own, and the second kernel adds in a fixed order, so that the result is the same every time. What follows
in the group, whole rows included, is done by the second kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader
from egg.expert.emit.words import PRODUCT
from egg.expert.index import Expr, loop_index, unflat
from egg.expert.parts import REACH
from egg.expert.patterns.product.follow import RowOperation
from egg.expert.patterns.product.groups import Groups
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import power_of_two
from egg.expert.patterns.product.triton.tail import NEUTRAL, Frame, Tail
from egg.expert.sizes import ONE, Size

LONGEST_ROW = 16384
"""Columns that one program of the second kernel holds at once."""


@dataclass(frozen=True)
class Second:
    """The second kernel and how it is launched."""

    kernel: Kernel
    grid: str
    warps: str


def all_rows(problem: Problem) -> Size:
    return problem.batch * problem.rows


def store_part(problem: Problem, kernel: Kernel, frame: Frame, masks: dict[str, str], batch: str) -> None:
    """What the first kernel does instead of a tail: one part of the result goes to memory as it is."""
    rows, columns = all_rows(problem), problem.columns
    row = loop_index(batch, problem.batch) * problem.rows + frame.row
    at = row * columns + frame.column
    mask = frame.guards(at.symbols(), masks)
    kernel.results["parts_ptr"] = parts_name(problem)
    kernel.body.line(f"at = part.to(tl.int64) * ({rows * columns}) + {frame.where(at)}")
    kernel.body.line(f"tl.store(parts_ptr + at, total{f', mask={mask}' if mask else ''})")


def parts_name(problem: Problem) -> str:
    return problem.host.local("parts")


def joined(
    problem: Problem, split: str, writes: tuple[str, ...], whole: bool, groups: Groups | None
) -> Second:
    """Add up the parts, then the whole tail. ``whole``: a program has whole rows."""
    kernel = Kernel(f"{problem.group.name}_join", "", problem.graph, PRODUCT)
    kernel.doc = "Add up the parts of the summed dimension in a fixed order, then do all that follows."
    body, rows, columns = kernel.body, all_rows(problem), problem.columns
    row, column = body.name("row"), body.name("column")
    width = power_of_two(columns.value)
    height = max(1, min(power_of_two(rows.value), (2048 if whole else 1024) // min(width, 1024)))
    masks: dict[str, str] = {}
    cast = ".to(tl.int64)" if (rows * columns).value >= REACH else ""
    if rows != ONE:
        body.line(f"{row} = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)){cast}[:, None]")
        masks[row] = f"({row} < {rows})"
    grid = f"(triton.cdiv({rows}, {height}),)"
    if columns != ONE:
        start = "" if whole else "tl.program_id(1) * COLUMNS + "
        if groups is None:
            body.line(f"{column} = {start}tl.arange(0, COLUMNS)[None, :]")
            masks[column] = f"({column} < {columns})"
        else:
            slot = body.name("slot")
            for line in groups.column_lines(column, slot, "tl.arange(0, COLUMNS)", "[None, :]"):
                body.line(line)
            masks[column] = groups.mask(column, slot)
        if not whole:
            block = min(width, 1024)
            kernel.meta["COLUMNS"] = str(block)
            grid = f"(triton.cdiv({rows}, {height}), triton.cdiv({columns}, {block}))"
        else:
            slots = groups.all_slots(False) if groups is not None else columns.code()
            kernel.meta["COLUMNS"] = f"triton.next_power_of_2({slots})"
    kernel.meta |= {"ROWS": str(height), "SPLIT_K": split}
    at_row, at_column = loop_index(row, rows), loop_index(column, columns)
    where = at_row * columns + at_column
    mask = " & ".join(masks.values())
    shape = f"({'ROWS' if rows != ONE else 1}, {'COLUMNS' if columns != ONE else 1})"
    body.line(f"total = tl.zeros({shape}, tl.float32)")
    body.line("for part in range(SPLIT_K):")
    text = str(where) if masks else "tl.arange(0, 1)[:, None]"
    body.line(f"    total += tl.load(parts_ptr + {text}{f', mask={mask}, other=0.0' if mask else ''})")
    body.line(f"    parts_ptr += {rows * columns}")
    kernel.operands["parts_ptr"] = parts_name(problem)
    reader = Reader(problem.graph, problem.group.nodes, body, masks, takes_rows=True)
    anchor = (*unflat(at_row, problem.result.shape[:-1]), at_column)
    frame = Frame(at_row, at_column, anchor, 1, ("ROWS" if rows != ONE else "1", "COLUMNS"))
    tail = Tail(problem, kernel, reader, frame, "total")
    tail.row_operations()
    tail.store(writes)
    kernel.add_pointers(reader.pointers)
    return Second(kernel, grid, "4" if height * min(width, 8192) <= 4096 else "8")


# -- parts of rows -------------------------------------------------------------------------------------


def partials_name(problem: Problem) -> str:
    return problem.host.local("partials")


def store_partial(problem: Problem, kernel: Kernel, tail: Tail, operation: RowOperation, batch: str) -> int:
    """One number (or two) per row of the tile, at the tile's own place. Returns how many."""
    contributions = tail.partial(operation, tail.input_of(operation))
    rows = all_rows(problem)
    row = loop_index(batch, problem.batch) * problem.rows + tail.frame.row
    masks = [tail.reader.masks[s] for s in tail.frame.row.symbols()]
    kernel.results["partials_ptr"] = partials_name(problem)
    for number, text in enumerate(contributions):
        tile = "tile_n" if number == 0 else "(tiles_n + tile_n)"
        kernel.body.line(f"tl.store(partials_ptr + {tile} * ({rows}) + {row}, {text}, mask={masks[0]})")
    return len(contributions)


def finished(problem: Problem, reduced: str, tiles: str, count: int, writes: tuple[str, ...]) -> Second:
    """Join the parts of each row, and do what follows the reduction."""
    kernel = Kernel(f"{problem.group.name}_finish", "", problem.graph, PRODUCT)
    kernel.doc = "Join what the tiles of a row contributed, in a fixed order, and finish the row."
    body, rows = kernel.body, all_rows(problem)
    row, column, tile = body.name("row"), body.name("column"), body.name("place")
    height = 32
    kernel.meta |= {"ROWS": str(height), "TILES": tiles, "WIDTH": f"triton.next_power_of_2({tiles})"}
    body.line(f"{row} = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]")
    body.line(f"{tile} = tl.arange(0, WIDTH)[None, :]")
    masks = {row: f"({row} < {rows})"}
    inside = f"{masks[row]} & ({tile} < TILES)"
    at_row, at_column = loop_index(row, rows), loop_index(column, problem.columns)
    anchor = (*unflat(at_row, problem.result.shape[:-1]), at_column)
    reader = Reader(problem.graph, problem.group.nodes, body, masks, takes_rows=True)
    tail = Tail(problem, kernel, reader, Frame(at_row, at_column, anchor), "total")
    operation = next(s for s in tail.followed.operations if s.node.output == reduced)
    fn = operation.node["fn"]
    neutral = NEUTRAL[fn]
    first = body.let(
        "parts",
        f"tl.load(partials_ptr + {tile} * ({rows}) + {_text(at_row, row)}, mask={inside}, other={neutral})",
    )
    kernel.operands["partials_ptr"] = partials_name(problem)
    if count == 2:
        second = body.let(
            "sums",
            f"tl.load(partials_ptr + (TILES + {tile}) * ({rows}) + {_text(at_row, row)}, "
            f"mask={inside}, other=0.0)",
        )
        top = body.let("top", f"tl.max({first}, axis=1, keep_dims=True)")
        summed = body.let("summed", f"tl.sum({second} * tl.exp({first} - {top}), axis=1, keep_dims=True)")
        contributions: tuple[str, ...] = (top, summed)
    else:
        how = fn if fn in ("max", "min") else "sum"
        contributions = (body.let("joined", f"tl.{how}({first}, axis=1, keep_dims=True)"),)
    tail.hold_result(operation, tail.finished(operation, contributions))
    for later in tail.followed.operations[tail.followed.operations.index(operation) + 1 :]:
        tail.row_operation(later)
    tail.store(writes)
    kernel.add_pointers(reader.pointers)
    return Second(kernel, f"(triton.cdiv({rows}, {height}),)", "4")


def _text(at: Expr, name: str) -> str:
    return name if at != Expr() else f"{name} * 0"
