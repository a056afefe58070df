"""Tables for people: plain enough to read in a pipe."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


def table(*columns: str, numbers: Iterable[int] = ()) -> Table:
    """Headed columns, those in ``numbers`` flush right."""
    right = set(numbers)
    made = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(Text(column), overflow="fold", justify="right" if index in right else "left")
    return made


def pairs(rows: Iterable[tuple[str, RenderableType]], style: str = "") -> Table:
    """Names and values, all in one ``style`` where it is given."""
    made = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name, value in rows:
        shown = Text(value, style=style, overflow="fold") if isinstance(value, str) else value
        made.add_row(Text(name, style=style or "bold"), shown)
    return made


def size(size: float) -> str:
    """Of shared memory."""
    if not size:
        return "none"
    return f"{size / 1024:.3g} KiB" if size >= 1024 else f"{size:.0f} B"
