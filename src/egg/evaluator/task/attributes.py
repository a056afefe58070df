"""Plain attributes of a module: what no ``state_dict`` holds, and a caller may read all the same.

A mixture of experts leaves the load of its last call in ``self.load``, in ``self.gate.load``, in
``self.stats["load"]``, in ``self.stats.load`` or in a buffer that is not persistent; a loss reads it there.
They are read where Python keeps them, and not by ``getattr``, which a file can override. A *path* names one:
``gate.stats['load']``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import torch
from torch import nn

from egg.evaluator.tensors.reals import as_reals

MOST = 1 << 14
"""Elements of a tensor that are looked at, of a larger one at places that are drawn."""
MOST_DENSE = 1 << 24
"""Elements of a sparse tensor that is looked at."""
DEPTH = 3
"""Containers and objects in one another."""
ITEMS = 256
"""Of one container."""
CONTAINERS = (dict, list, tuple, OrderedDict, defaultdict, Counter, deque)
LIBRARIES = ("torch", "triton", "numpy")
"""Whose objects are not looked into."""
WORD = 32
_vars = vars
_mro, _dict = (type.__dict__[name].__get__ for name in ("__mro__", "__dict__"))
Shown = tuple[tuple[int, ...] | None, tuple[float, ...]]
"""The shape of a tensor, and elements of it; no shape, and a number. Integers are two words each."""


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
        elif isinstance(self.owner, dict | list | deque):
            self.owner[self.key] = value
        elif not isinstance(self.owner, tuple):
            object.__setattr__(self.owner, self.key, value)


def held_in(module: nn.Module) -> dict[str, Held]:
    """Public attributes of the module and its parts that are numbers or tensors, or nothing yet, by path."""
    found: dict[str, Held] = {}
    for prefix, part in _parts(module, "", set()):
        own = _vars(part)
        lost = {name: own["_buffers"].get(name) for name in own["_non_persistent_buffers_set"]}
        for name, value in [*own.items(), *lost.items()]:
            if not name.startswith("_") and name != "training":
                found |= dict(_leaves(prefix + name, Held(part, name, value), DEPTH))
    return found


def unsaved_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers themselves that no ``state_dict`` holds, by name."""
    saved = module.state_dict()
    return {name: held for name, held in module.named_buffers() if name not in saved}


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
    elif depth and _is_container(value):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(islice(items, ITEMS)):
            if type(key) in (str, int):
                yield from _leaves(f"{path}[{key!r}]", Held(value, key, item), depth - 1)
    elif depth and not issubclass(type(value), (nn.Module, torch.Tensor)):
        for name, item in islice(_attributes_of_an_object(value), ITEMS):
            yield from _leaves(f"{path}.{name}", Held(value, name, item), depth - 1)


def _attributes_of_an_object(value: Any) -> Iterator[tuple[str, Any]]:
    """What an instance of a class that a program defines holds, without running anything that it defines."""
    for kind in _mro(type(value)):
        own = _dict(kind)
        if str(own.get("__module__")).partition(".")[0] in LIBRARIES:
            return
    seen: set[str] = set()
    for kind in _mro(type(value)):
        for name, slot in list(_dict(kind).items()):
            if name == "__dict__" and type(slot) is GetSetDescriptorType:
                found = [pair for pair in slot.__get__(value).items() if type(pair[0]) is str]
            elif type(slot) is MemberDescriptorType and _is_python(kind):
                found = [(name, held) for held in _in_slot(slot, value)]
            else:
                continue
            for key, item in found:
                if not key.startswith("_") and key not in seen:
                    seen.add(key)
                    yield key, item


def _is_python(kind: type) -> bool:
    """Whether a class was made by a ``class`` statement."""
    return "__slots__" in _dict(kind)


def _in_slot(slot: MemberDescriptorType, value: Any) -> list[Any]:
    try:
        return [slot.__get__(value)]
    except AttributeError:  # nothing yet
        return []


def _is_container(value: Any) -> bool:
    """One whose methods are Python's: others would see that they are asked."""
    kind = type(value)
    named = issubclass(kind, tuple) and kind.__iter__ is tuple.__iter__ and kind.__len__ is tuple.__len__
    return named or kind in CONTAINERS


def _plain(value: Any) -> bool:
    return issubclass(type(value), (int, float)) or type(value) is torch.Tensor


def shown(value: Any, seed: int = 0) -> Shown | None:
    """``seed``: of the places at which a large tensor is looked at."""
    if value is None or not _plain(value):
        return None
    if not isinstance(value, torch.Tensor):
        return None, _words(value) if whole(value) else (float.__float__(value),)
    if value.layout != torch.strided and value.numel() > MOST_DENSE:
        return None
    value = value.detach()
    found = looked_at(value if value.layout == torch.strided else value.to_dense(), seed)
    return tuple(value.shape), tuple(found.double().reshape(-1).tolist())


def looked_at(tensor: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Elements of a tensor in a row, complex ones as pairs and integers as two words."""
    flat = chosen(tensor.reshape(-1), seed)
    if whole(tensor):
        flat = flat.view(torch.int64) if flat.dtype is torch.uint64 else flat.long()
        return torch.stack((flat >> WORD, flat & ((1 << WORD) - 1)), dim=-1)
    return as_reals(flat.resolve_conj())


def chosen(rows: torch.Tensor, seed: int) -> torch.Tensor:
    """Some of the rows, where there are many."""
    if len(rows) <= MOST:
        return rows
    places = torch.randint(len(rows), (MOST,), generator=torch.Generator().manual_seed(seed))
    return rows[places.to(rows.device)]


def whole(value: Any) -> bool:
    """Whether it has integers, which are compared exactly."""
    if isinstance(value, torch.Tensor):
        return not (value.is_floating_point() or value.is_complex())
    return issubclass(type(value), int)


def _words(value: int) -> tuple[float, float]:
    number = int.__int__(value)  # and no method of a class of the program's
    high = max(-(1 << 53), min(1 << 53, number >> WORD))
    return float(high), float(number & ((1 << WORD) - 1))


def shown_in(module: nn.Module) -> dict[str, Shown | None]:
    """As they are now, whatever is done to their tensors later."""
    return {path: shown(value) for path, value in attributes_of(module).items()}


def written(before: dict[str, Shown | None], after: dict[str, Shown | None]) -> tuple[str, ...]:
    """Attributes that hold another value now."""
    return tuple(path for path, value in after.items() if value is not None and before.get(path) != value)
