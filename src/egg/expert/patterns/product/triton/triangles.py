"""Products of triangles: blocks of zeros are not loaded, and tiles that are cut away are not computed."""

from __future__ import annotations

from egg.expert.emit.reader import Body
from egg.expert.index import Expr
from egg.expert.patterns.product.problem import Problem


def cut(
    problem: Problem, body: Body, loops: tuple[Expr, Expr, Expr, Expr], low: str, high: str
) -> tuple[str, str]:
    """From where to where a tile sums, where operands are triangles or the result is cut to one.

    ``loops``: batch, row, column and summed index. Lines that compute the bounds go to ``body``.
    """
    batch, row, column, k = loops
    left = problem.triangle(problem.left.name, problem.left_index(batch, row, k))
    right = problem.triangle(problem.right.name, problem.right_index(batch, k, column))
    lows, highs = [], []
    for found, other, tile, block in (
        (left, row, "tile_m", "BLOCK_M"),
        (right, column, "tile_n", "BLOCK_N"),
    ):
        if found is None or {found[0], found[1]} != {other, k}:
            continue
        at_row, _, upper, diagonal = found
        begins = at_row == other
        if begins == upper:
            lows.append(f"{tile} * {block} {'+' if begins else '-'} {_operand(diagonal)}")
        else:
            highs.append(f"({tile} + 1) * {block} {'+' if begins else '-'} {_operand(diagonal)}")
    if lows:
        body.line(f"k_low = {_nested('maximum', ['0', *lows])} // BLOCK_K * BLOCK_K")
        low = "k_low"
    if highs:
        body.line(f"k_high = {_nested('minimum', [high, *highs])}")
        high = "k_high"
    if (empty := _outside(problem)) is not None:
        body.line(f"k_high = tl.where({empty}, 0, {high})  # cut away: nothing to sum")
        high = "k_high"
    return low, high


def _outside(problem: Problem) -> str | None:
    """When the tail cuts a whole tile away; ``None`` where it does not."""
    readers = problem.graph.consumers[problem.result.name]
    if len(readers) != 1 or readers[0].op != "triangle" or readers[0] not in problem.group.nodes:
        return None
    if problem.result.name in problem.graph.results or problem.rows != problem.result.shape[-2]:
        return None
    upper, diagonal = bool(readers[0]["upper"]), str(readers[0]["diagonal"])
    if upper:
        return f"(tile_n + 1) * BLOCK_N - 1 - tile_m * BLOCK_M < {diagonal}"
    return f"tile_n * BLOCK_N - (tile_m + 1) * BLOCK_M + 1 > {diagonal}"


def _operand(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _nested(fn: str, items: list[str]) -> str:
    text = items[0]
    for item in items[1:]:
        text = f"tl.{fn}({text}, {item})"
    return text
