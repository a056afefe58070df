"""Element-wise operators on numbers that are known when a kernel is written."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from egg.expert.emit.triton.scalar import is_literal

FOLDED: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "cast": lambda x: x,
}  # fmt: skip
"""Exact for numbers of a few digits, or as exact as the kernel is with them."""


def folded(fn: str, texts: Sequence[str], scalars: Sequence[Any], dtype: str) -> str | None:
    """The result as text where that takes no operator; ``None`` where it does. ``scalars``: the numbers among
    the operands, with ``None`` where a text stands."""
    waiting = iter(texts)
    operands = [next(waiting) if value is None else repr(value) for value in scalars] + list(waiting)
    numbers = [_number(text) for text in operands]
    if fn in FOLDED and all(number is not None for number in numbers):
        return _text(FOLDED[fn](*numbers), dtype)
    if dtype != "float32" or len(operands) != 2:
        return None
    (a, b), (x, y) = operands, numbers
    match fn:
        case "add" if x == 0 or y == 0:
            return b if x == 0 else a
        case "sub" if y == 0:
            return a
        case "mul" if x == 1 or y == 1:
            return b if x == 1 else a
    return None


def _number(text: str) -> float | int | None:
    """A number, of an index too; ``None`` for a variable."""
    if not is_literal(text) or not any(c.isdigit() or c == "T" or c == "F" for c in text):
        return None
    try:
        return ast.literal_eval(text.strip("()"))
    except (ValueError, SyntaxError):
        return None


def _text(number: float | int, dtype: str) -> str:
    if dtype == "bool":
        return repr(bool(number))
    return repr(float(number) if "float" in dtype else int(number))
