"""Frozen dataclasses to JSON and back, by their type annotations.

Unions of dataclasses are distinguished by the class variable ``kind``, which every member of
a union carries, enumerations by their values. Floats that JSON cannot hold (nan, inf) travel as strings.

A class whose fields were renamed lists the earlier names in its class variable ``formerly`` (earlier name to
present one): files of older versions are read, only the present names are written.
"""

from __future__ import annotations

import dataclasses
import functools
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
    if cls is str or cls is int or cls is bool:
        return data
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
        hints, formerly = _field_types(cls), getattr(cls, "formerly", {})
        named = {formerly.get(k, k): v for k, v in data.items()}
        return cls(**{k: from_json(hints[k], v) for k, v in named.items() if k in hints})
    if isinstance(cls, type) and issubclass(cls, Enum | float):
        return cls(data)
    return data


@functools.cache
def _field_types(cls: type) -> dict[str, Any]:
    """Annotations resolved to types, which costs more than all the rest: once per class."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _from_union(args: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in args:
        return None
    members = [a for a in args if a is not type(None)]
    tagged = {m.kind: m for m in members if hasattr(m, "kind")}
    enums = [m for m in members if isinstance(m, type) and issubclass(m, Enum)]
    if len(enums) > 1:
        named = {value.value: value for m in enums for value in m}
        if data not in named:
            raise ValueError(f"expected one of {', '.join(map(str, named))}, found {data!r:.80}")
        return named[data]
    if not tagged:
        plain = tuple(m for m in members if isinstance(m, type))
        return data if isinstance(data, plain) else from_json(members[0], data)
    if not isinstance(data, dict) or data.get("kind") not in tagged:
        raise ValueError(f"expected one of {', '.join(tagged)}, found {data!r:.80}")
    return from_json(tagged[data["kind"]], data)
