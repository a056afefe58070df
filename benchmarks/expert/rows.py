"""Rows of a batch: lines of JSON, one per task, each written whole or not at all.

Only the program that was started writes them, with one ``write`` per line; what a killed one leaves is
whole lines and perhaps a torn one, which the next cuts off. Of several rows of a task the last counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import Key

from egg.core.lines import LineFile, whole_lines

Row = dict[str, Any]

MACHINE = "machine: "
"""How the verdict begins where the machine, or this program, is to blame: such a task may be tried again."""
BULKY = ("schema", "attempts", "steps", "kernels", "stopped", "trace")
"""What the evidence in the repository does without; of attempts and steps a summary stays."""
MOST_KINDS = 8
"""Kinds of kernels that it names; a network may have a hundred groups."""


def key_of_row(row: Row) -> Key:
    return row["level"], row["problem"]


def read_rows(path: Path) -> list[Row]:
    """The last row of every task, by level and number; a torn last line is passed over."""
    rows = [json.loads(line) for _, line in whole_lines(path)]
    return sorted({key_of_row(row): row for row in rows}.values(), key=key_of_row)


class Rows:
    """A file of rows that is being added to."""

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path, "{")

    def add(self, row: Row) -> None:
        self._lines.add(json.dumps(row))

    def close(self) -> None:
        self._lines.close()


def to_retry(row: Row) -> bool:
    """Whether another try may come to something else: the machine, or a fault of ours, cut it short."""
    return row["verdict"].startswith(MACHINE) or bool(row.get("trouble"))


def slim(row: Row) -> Row:
    """A row as it is kept in the repository: all figures, none of the long stories."""
    kept = {name: value for name, value in row.items() if name not in BULKY}
    if "attempts" in row:
        kept["refused"] = [attempt["refused"] for attempt in row["attempts"] if attempt["refused"]]
    if "steps" in row:
        kept["gains"] = gains_of(row)
    if row.get("structure"):
        structure = {name: value for name, value in row["structure"].items() if name != "groups"}
        kept["structure"] = structure | {"kinds": kinds_of(row)[:MOST_KINDS]}
    return kept


def kinds_of(row: Row) -> list[str]:
    """What the groups of a kernel file do, each kind once, with how often."""
    structure = row.get("structure") or {}
    if "kinds" in structure:
        return structure["kinds"]
    told = [group.partition(": ")[2] for group in structure.get("groups", ())]
    return [f"{kind} (x{n})" if (n := told.count(kind)) > 1 else kind for kind in dict.fromkeys(told)]


def gains_of(row: Row) -> list[str]:
    """What came of each step behind the seed, as in ``tiling: promoted 1.381x``."""
    return row.get("gains") or [_gain(step) for step in row.get("steps", ()) if step["change"]]


def _gain(step: Mapping[str, Any]) -> str:
    ratio = f" {step['gain']:.3f}x" if step["gain"] is not None else ""
    return f"{step['stage']}: {step['decision']}{ratio}"


def significant(value: float | None, digits: int = 5) -> float | None:
    """As many digits as a measurement deserves."""
    return None if value is None else float(f"{value:.{digits}g}")
