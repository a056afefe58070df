"""Rows of text under headings: printed as they come, and kept as a Markdown page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """Cells are cut to their column's width on the terminal, never on the page."""

    headings: tuple[str, ...]
    widths: tuple[int, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def begin(self) -> None:
        self._print(self.headings)
        self._print(["-" * width for width in self.widths])

    def add(self, row: Sequence[str]) -> None:
        if len(row) != len(self.headings):
            raise ValueError(f"{len(row)} cells under {len(self.headings)} headings")
        self.rows.append(tuple(row))
        self._print(row)

    def markdown(self) -> str:
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines)

    def _print(self, cells: Sequence[str]) -> None:
        padded = (c[:w].ljust(w) for c, w in zip(cells, self.widths, strict=True))
        print("  ".join(padded).rstrip(), flush=True)
