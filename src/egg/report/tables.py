"""Tables for programs and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from egg.report.elements import visible

Cell = str | float | bool | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """RFC 4180 with a line of names; numbers in full, nothing where there is no value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def _cell(cell: Cell) -> str:
    """A text that a spreadsheet would take for a formula is quoted with an apostrophe, as they understand."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        shown = visible(cell)
        return f"'{shown}" if shown.startswith(_FORMULA) else shown
    return repr(cell)
