"""How the tile of a program meets the sectors of memory that its results are in."""

from __future__ import annotations

from egg.expert.emit.reader import address
from egg.expert.graph import BYTES
from egg.expert.patterns.loops.work import Work
from egg.expert.sizes import ONE

SECTOR = 32
"""Bytes that memory reads and writes at once."""


def rows_side_by_side(work: Work, most: int) -> int:
    """Rows of a tile that fill two sectors, or one, where rows lie side by side in a result: a program with
    fewer writes a part of a sector for each element. 1 elsewhere, and where that is more than ``most``."""
    row, column = work.domain.names[1:]
    widths: list[int] = []
    for name, index in work.writes.items():
        value = work.graph.value(name)
        at, width = address(value, index), BYTES.get(value.dtype, 4)
        stride = at.stride_of(column)
        beside = any(factor == ONE and row in atom.symbols() for atom, factor in at.terms)
        if beside and stride is not None and stride.value * width >= SECTOR and name not in work.scatters:
            widths.append(width)
    sizes = (sectors * SECTOR // max(widths) for sectors in (2, 1)) if widths else ()
    return next((rows for rows in sizes if rows <= most), 1)
