"""A module's buffers and plain attributes as they are at one time, to go back to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.evaluator.reference.answers import same_bytes


@dataclass(frozen=True)
class _Part:
    """One module of a tree, without its children."""

    module: nn.Module
    attributes: Mapping[str, Any]
    buffers: Mapping[str, torch.Tensor | None]
    values: Mapping[str, torch.Tensor]

    def moved(self) -> bool:
        """Whether it holds other objects than then, or other values in its buffers."""
        if not _same_objects(vars(self.module), self.attributes):
            return True
        if not _same_objects(self.module._buffers, self.buffers):
            return True
        held = ((buffer, self.values[name]) for name, buffer in self.buffers.items() if buffer is not None)
        return not all(same_bytes(*pair) for pair in held)

    def put_back(self) -> None:
        held = vars(self.module)
        for name in held.keys() - self.attributes.keys():
            del held[name]
        held.update(self.attributes)
        own = self.module._buffers
        own.clear()
        own.update(self.buffers)
        for name, value in self.values.items():
            buffer = own[name]
            assert buffer is not None
            buffer.copy_(value)


@dataclass(frozen=True)
class Snapshot:
    """A forward may write to a buffer, put another in its place, and note in an attribute that it did: a
    table that is made at the first call is there or is not, with the flag that says so."""

    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Snapshot:
        return cls(tuple(map(_part, module.modules())))

    def moved(self) -> bool:
        """Whether anything is another one since."""
        return any(part.moved() for part in self.parts)

    def put_back(self) -> None:
        for part in self.parts:
            part.put_back()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """The module as it was then; behind the block, as it is now."""
        now = Snapshot.of(self.parts[0].module)
        self.put_back()
        try:
            yield
        finally:
            now.put_back()


def _same_objects(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _part(module: nn.Module) -> _Part:
    buffers = dict(module._buffers)
    values = {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}
    return _Part(module, dict(vars(module)), buffers, values)
