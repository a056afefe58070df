"""Text from a run in Markdown, so that it stays text: no links, no images, no tags, no table cells of
their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from egg.report.elements import visible

_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_LONGEST = 400


def line(text: object) -> str:
    """One line of plain words."""
    return _MARKS.sub(r"\\\1", _flat(text))


def cell(text: object) -> str:
    """The same for a cell of a table, cut where it is long."""
    flat = _flat(text)
    return line(flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}")


def code(text: object) -> str:
    """One line as code, within more backticks than it has."""
    flat = _flat(text)
    fence = "`" * (1 + _longest_run(flat))
    air = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{air}{flat}{air}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A block of code, within a fence that is longer than any in it."""
    shown = visible(text)
    fence = "`" * max(3, 1 + _longest_run(shown))
    return f"{fence}{language}\n{shown.rstrip()}\n{fence}"


def _flat(text: object) -> str:
    return " ".join(visible(str(text)).split())


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


FILTERS: dict[str, Callable[..., Any]] = {"line": line, "cell": cell, "code": code, "fenced": fenced}
