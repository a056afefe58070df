"""Dataclasses to JSON, and back without trust: what a foreign process writes is read exactly or not at all.

:func:`strictly` reads a value by its annotation. Every key of a dataclass must be there and no other, every
number must be of its kind and within bounds, every list within its length: a reader behind it computes with
the numbers and must not be led to an overflow, an endless text or a missing field.

A plain ``int`` is a count and a plain ``float`` an amount: neither is negative. :data:`Integer`,
:data:`Finite` and :data:`AnyNumber` allow more, ``Sizes`` a longer list of counts than a grid has.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

LARGEST = 1 << 63
"""Beyond it an integer is no count of anything, and may be too long for arithmetic."""
MOST_COUNTED = 1 << 40
"""Of programs, instructions, registers: products of several such numbers stay within a float's range."""
MOST_SIZES = 3
"""Counts in one plain list: a grid has so many, and its product must stay a number."""
MOST_DIMENSIONS = 64
"""Of a tensor, in PyTorch."""

_FINITE, _ANY = "finite, of either sign", "finite, infinite or NaN"

Integer = Annotated[int, _FINITE]
Finite = Annotated[float, _FINITE]
AnyNumber = Annotated[float, _ANY]
Sizes = Annotated[tuple[int, ...], MOST_DIMENSIONS]


class Malformed(Exception):
    """JSON that is not the value it should be."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The longest text and the longest list that are read."""

    text: int = LARGEST
    items: int = LARGEST


WIDE = Bounds()
"""For messages whose length the wire limits."""


def plain(value: Any) -> Any:
    """What JSON writes for a value of dataclasses, mappings and lists; a field of ``Any`` is JSON already."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: getattr(value, name) if kind is Any else plain(getattr(value, name))
            for name, kind in _fields(type(value)).items()
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def strictly(cls: Any, data: Any, where: str, bounds: Bounds = WIDE) -> Any:
    """A value of annotation ``cls``, if ``data`` is exactly what :func:`plain` makes of one."""
    mark: Any = None
    if typing.get_origin(cls) is Annotated:
        cls, mark = typing.get_args(cls)
    origin, arguments = typing.get_origin(cls), typing.get_args(cls)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        return None if data is None else strictly(inner, data, where, bounds)
    if origin is tuple:
        return _tuple(arguments, mark, data, where, bounds)
    if origin is not None and issubclass(origin, Mapping):
        _require(isinstance(data, dict) and len(data) <= bounds.items, where)
        return {
            strictly(str, k, where, bounds): strictly(arguments[1], v, where, bounds) for k, v in data.items()
        }
    if dataclasses.is_dataclass(cls) and isinstance(cls, type):
        fields = _fields(cls)
        _require(isinstance(data, dict) and data.keys() == fields.keys(), where)
        return cls(**{n: strictly(inner, data[n], f"{where}.{n}", bounds) for n, inner in fields.items()})
    _require(_fits(cls, mark, data, bounds), where)
    return float(data) if cls is float else data


def _tuple(arguments: tuple[Any, ...], mark: Any, data: Any, where: str, bounds: Bounds) -> tuple[Any, ...]:
    if arguments[-1] is not Ellipsis:
        _require(isinstance(data, list) and len(data) == len(arguments), where)
        return tuple(strictly(a, item, where, bounds) for a, item in zip(arguments, data, strict=True))
    most = mark or (MOST_SIZES if arguments[0] is int else bounds.items)
    _require(isinstance(data, list) and len(data) <= most, where)
    return tuple(strictly(arguments[0], item, where, bounds) for item in data)


def _fits(cls: Any, mark: Any, data: Any, bounds: Bounds) -> bool:
    """Whether ``data`` is a text, a truth or a number of the kind that ``cls`` and ``mark`` name."""
    if cls is str:
        return type(data) is str and len(data) <= bounds.text
    if cls is bool:
        return type(data) is bool
    if cls is int:
        return type(data) is int and (abs(data) < LARGEST if mark else 0 <= data < MOST_COUNTED)
    if cls is not float or type(data) not in (int, float):
        return False
    if type(data) is int:
        return abs(data) < LARGEST and (mark is not None or data >= 0)
    return mark == _ANY or (math.isfinite(data) and (mark == _FINITE or 0 <= data < LARGEST))


def _require(right: bool, where: str) -> None:
    if not right:
        raise Malformed(f"{where} is not what it should be")


@functools.cache
def _fields(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
