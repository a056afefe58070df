"""One use of a scalar function, and numbers as Triton has them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from egg.expert.parts import Unfit
from egg.expert.sizes import Size

FLOATING = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Call:
    """One use of a function: its operands in ATen's order, texts and literals alike, and their dtypes."""

    operands: tuple[str | None, ...]
    """``None`` for one that is absent (a bound of ``clamp``)."""
    given: tuple[Any, ...]
    """The same operands where they are numbers, ``None`` for tensors and absent ones."""
    dtypes: tuple[str, ...]
    """Of the tensors among them."""
    result: str

    def __getitem__(self, place: int) -> str:
        text = self.operands[place]
        if text is None:
            raise Unfit("an operand is missing")
        return text

    def number(self, place: int, default: float) -> float:
        """A constant operand, or its default where the call leaves it out."""
        value = self.given[place] if place < len(self.given) else None
        return default if value is None else value

    @property
    def floating(self) -> bool:
        return any(dtype in FLOATING for dtype in self.dtypes) or self.result in FLOATING


Rule = Callable[[Call], str]


def literal(value: Any) -> str:
    """A number as Triton understands it: infinities and NaN are no names there. A size is its name."""
    if isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, Size):
        return number_text(value)
    value = float(value)
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def number_text(value: Any) -> str:
    """A number or a size as an operand: a product of sizes behind a division needs its brackets."""
    text = literal(value) if isinstance(value, (bool, int, float)) else str(value)
    return f"({text})" if text.startswith("-") or " " in text else text


def is_literal(text: str) -> bool:
    """A Python number, which has no ``.to``."""
    return re.fullmatch(r"[-+*/%()\d.e ]*|True|False|float\(\"-?(inf|nan)\"\)", text) is not None
