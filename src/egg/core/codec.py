"""Frozen dataclasses to JSON and back, by their type annotations.

Unions of dataclasses are told apart by the class variable ``kind``, which every member of
a union carries. Floats that JSON cannot hold (nan, inf) travel as strings.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any


def to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = getattr(value, "kind", None)
        return {"kind": kind, **fields} if kind else fields
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(cls: Any, data: Any) -> Any:
    """Rebuild a value of annotation ``cls`` from what :func:`to_json` wrote."""
    origin, args = typing.get_origin(cls), typing.get_args(cls)
    if cls is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        return _from_union(args, data)
    if origin is tuple:
        return tuple(from_json(args[0], item) for item in data)
    if origin is not None and issubclass(origin, Mapping):
        return {k: from_json(args[1], v) for k, v in data.items()}
    if dataclasses.is_dataclass(cls) and isinstance(cls, type):
        hints = typing.get_type_hints(cls)
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: from_json(hints[k], v) for k, v in data.items() if k in known})
    if isinstance(cls, type) and issubclass(cls, Enum | float):
        return cls(data)
    return data


def _from_union(args: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in args:
        return None
    members = [a for a in args if a is not type(None)]
    if isinstance(data, dict) and "kind" in data:
        return from_json(next(m for m in members if getattr(m, "kind", None) == data["kind"]), data)
    return from_json(members[0], data)
