"""Arguments and results as leaves and a structure: PyTorch's pytrees, and dataclasses that they do not know.

A capture and a kernel pass tensors; people pass dictionaries, named tuples, dataclasses, options and numbers.
:func:`flatten` takes a value apart and :meth:`Structure.built` puts another one of its form together.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, type, enum.Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, types.FunctionType,
    types.BuiltinFunctionType,
)  # fmt: skip
"""Leaves that have no state: equal ones are as good as the same."""


@dataclass(frozen=True)
class Record:
    """A dataclass in a structure: its type, the names of its fields, and the structure of what these hold."""

    kind: type
    names: tuple[str, ...]
    inner: Structure

    def built(self, leaves: Sequence[Any]) -> Any:
        made = object.__new__(self.kind)
        for name, value in zip(self.names, self.inner.built(leaves), strict=True):
            object.__setattr__(made, name, value)
        return made


@dataclass(frozen=True)
class Structure:
    """The form of a value; equal forms compare equal."""

    spec: pytree.TreeSpec
    records: tuple[Record | None, ...]
    """For each leaf of ``spec`` the dataclass that it is, or nothing."""
    paths: tuple[str, ...]
    """For each leaf where it stands, as a name: ``mask``, ``states_0``."""

    @property
    def count(self) -> int:
        return len(self.paths)

    def built(self, leaves: Sequence[Any]) -> Any:
        remaining = list(leaves)
        found: list[Any] = []
        for record in self.records:
            size = 1 if record is None else record.inner.count
            part, remaining = remaining[:size], remaining[size:]
            found.append(part[0] if record is None else record.built(part))
        return pytree.tree_unflatten(found, self.spec)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of a value, and its structure."""
    pairs, spec = pytree.tree_flatten_with_path(value, is_leaf=_is_record)
    leaves: list[Any] = []
    records: list[Record | None] = []
    paths: list[str] = []
    for path, leaf in pairs:
        name = _named(path)
        if not _is_record(leaf):
            leaves.append(leaf)
            records.append(None)
            paths.append(name)
            continue
        names = tuple(f.name for f in dataclasses.fields(leaf) if hasattr(leaf, f.name))
        inner, form = flatten([getattr(leaf, n) for n in names])
        leaves += inner
        records.append(Record(type(leaf), names, form))
        paths += [f"{name}_{_field(names, p)}" if name else _field(names, p) for p in form.paths]
    return leaves, Structure(spec, tuple(records), tuple(paths))


def _field(names: Sequence[str], path: str) -> str:
    place, _, rest = path.partition("_")
    return f"{names[int(place)]}_{rest}" if rest else names[int(place)]


def _is_record(value: Any) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value) not in pytree.SUPPORTED_NODES
    )


def _named(path: Sequence[Any]) -> str:
    keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", ""))) for key in path]
    return "_".join(str(key) for key in keys)


def same_leaf(one: Any, other: Any) -> bool:
    """Whether a leaf that is no tensor is as good as the one that was captured."""
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(one, PLAIN):
        return False
    return bool(one == other)
