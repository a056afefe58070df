"""Tables for a terminal and for a Markdown page, and the numbers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from egg.core.evaluation import Interval


@dataclass
class Table:
    """Rows of text under fixed headings; each row is printed as it comes, so that progress is seen."""

    headings: tuple[str, ...]
    widths: tuple[int, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def begin(self) -> None:
        print(self._line(self.headings), flush=True)
        print(self._line(["-" * width for width in self.widths]), flush=True)

    def add(self, *cells: object) -> None:
        row = tuple(str(cell) for cell in cells)
        if len(row) != len(self.headings):
            raise ValueError(f"{len(row)} cells under {len(self.headings)} headings")
        self.rows.append(row)
        print(self._line(row), flush=True)

    def markdown(self) -> str:
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines)

    def _line(self, cells: Sequence[str]) -> str:
        padded = (c[:w].ljust(w) for c, w in zip(cells, self.widths, strict=True))
        return "  ".join(padded).rstrip()


def spread(value: Interval | None, digits: int = 2) -> str:
    """``1.61 (1.60-1.63)``."""
    if value is None:
        return "-"
    return f"{value.median:.{digits}f} ({value.low:.{digits}f}-{value.high:.{digits}f})"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
