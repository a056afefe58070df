"""Names for what lies in lists, tuples and dictionaries of a call, which a domain speaks of one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def items_of(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and items of a container; ``None`` for anything else, and for keys that no subscript spells."""
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, dict) and all(type(key) in (int, str) for key in value):
        return list(value.items())
    return None


def inner_name(name: str, key: Any, used: set[str]) -> str:
    """The name of the item under ``key`` of ``name``: none of those ``used``, to which it is added."""
    inner = re.sub(r"\W", "_", f"{name}_{key}")
    while inner in used:
        inner += "_"
    used.add(inner)
    return inner


def leaves(name: str, value: Any, used: set[str]) -> Iterator[tuple[str, Any]]:
    """What lies in ``value``, however deep, by name: itself, if it is no container."""
    items = items_of(value)
    if items is None:
        yield name, value
        return
    for key, item in items:
        yield from leaves(inner_name(name, key, used), item, used)
