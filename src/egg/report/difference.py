"""What changed from one file to the next, as lines with a sign and some lines around them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum

AROUND = 3
"""Lines shown on either side of a change."""
LONGEST = 20_000
"""Lines of both files together beyond which they are not compared: it would take too long."""


class Sign(StrEnum):
    """What became of a line; the value is how it is written."""

    SAME = "  "
    ADDED = "+ "
    REMOVED = "- "
    PLACE = "@ "


@dataclass(frozen=True)
class Line:
    kind: Sign
    text: str


@dataclass(frozen=True)
class Difference:
    """From ``before`` to ``after``; no lines where the two are alike, or too long to compare."""

    lines: tuple[Line, ...]
    added: int
    removed: int
    too_long: bool = False

    @property
    def counts(self) -> str:
        if self.too_long:
            return "too long to compare"
        return f"{self.added} added, {self.removed} removed" if self.lines else "no line differs"


def difference(before: str, after: str) -> Difference:
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > LONGEST:
        return Difference((), 0, 0, too_long=True)
    lines = [_line(text) for text in list(difflib.unified_diff(old, new, lineterm="", n=AROUND))[2:]]
    added, removed = (sum(line.kind is sign for line in lines) for sign in (Sign.ADDED, Sign.REMOVED))
    return Difference(tuple(lines), added, removed)


def _line(text: str) -> Line:
    if text.startswith("@@"):
        return Line(Sign.PLACE, text.strip("@ "))
    sign = {"+": Sign.ADDED, "-": Sign.REMOVED}.get(text[:1], Sign.SAME)
    return Line(sign, text[1:])
