"""Plain attributes of a module: what is neither a parameter nor a buffer, and a caller may read all the same.

A mixture of experts leaves the load of its last call in ``self.load``, in ``self.gate.load`` or in
``self.stats["load"]``; a loss reads it there. They are read where Python keeps them, and not by ``getattr``,
which a file can override. A *path* names one of them: ``gate.stats['load']``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

MOST = 4096
"""Elements of a tensor that are looked at."""
DEPTH = 3
"""Containers in containers."""
ITEMS = 256
"""Of one container."""
CONTAINERS = (dict, list, tuple, OrderedDict, defaultdict, Counter)
_vars = vars
Shown = tuple[tuple[int, ...] | None, tuple[float, ...]]
"""The shape of a tensor, and its first elements; no shape, and one number."""


@dataclass(frozen=True)
class Held:
    """A value, and what holds it under which name, key or index."""

    owner: Any
    key: Any
    value: Any

    def put(self, value: Any) -> None:
        """Another value in its place; a tuple keeps what it has."""
        if isinstance(self.owner, nn.Module):
            setattr(self.owner, self.key, value)
        elif isinstance(self.owner, dict | list):
            self.owner[self.key] = value


def held_in(module: nn.Module) -> dict[str, Held]:
    """Public attributes of the module and its parts that are numbers or tensors, or nothing yet, by path."""
    found: dict[str, Held] = {}
    for prefix, part in _parts(module, "", set()):
        for name, value in list(_vars(part).items()):
            if not name.startswith("_") and name != "training":
                found |= dict(_leaves(prefix + name, Held(part, name, value), DEPTH))
    return found


def attributes_of(module: nn.Module) -> dict[str, Any]:
    return {path: held.value for path, held in held_in(module).items()}


def _parts(module: nn.Module, prefix: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, child in _vars(module)["_modules"].items():
        if child is not None:
            yield from _parts(child, f"{prefix}{name}.", seen)


def _leaves(path: str, held: Held, depth: int) -> Iterator[tuple[str, Held]]:
    value = held.value
    if value is None or _plain(value):
        yield path, held
    elif depth and _is_container(value) and len(value) <= ITEMS:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items):
            if type(key) in (str, int):
                yield from _leaves(f"{path}[{key!r}]", Held(value, key, item), depth - 1)


def _is_container(value: Any) -> bool:
    """One whose methods are Python's: others would see that they are asked."""
    kind = type(value)
    named = issubclass(kind, tuple) and kind.__iter__ is tuple.__iter__ and kind.__len__ is tuple.__len__
    return named or kind in CONTAINERS


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) or type(value) is torch.Tensor


def shown(value: Any) -> Shown | None:
    if value is None or not _plain(value):
        return None
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.layout != torch.strided:
            return None
        return tuple(value.shape), tuple(value.detach().reshape(-1)[:MOST].double().tolist())
    return None, (float(value),)


def shown_in(module: nn.Module) -> dict[str, Shown | None]:
    """As they are now, whatever is done to their tensors later."""
    return {path: shown(value) for path, value in attributes_of(module).items()}


def written(before: dict[str, Shown | None], after: dict[str, Shown | None]) -> tuple[str, ...]:
    """Attributes that hold another value now."""
    return tuple(path for path, value in after.items() if value is not None and before.get(path) != value)
