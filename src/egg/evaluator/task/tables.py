"""Tensors of which a forward only picks rows: how much of them must be read at least.

An embedding or an indexing reads no more than it picks. A floor that counts a table of which a program
touches a few rows as a whole lies above what the program can reach. So of memory that nothing but such
operators read, no more counts than they pick: indices times the bytes of a row. Indices that repeat read
less still; which ones do is in the data, and floors are for any data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from egg.evaluator.task import costs
from egg.evaluator.task.meta import Meter, distinct_bytes

PICKING = frozenset(["embedding", "index", "_unsafe_index", "index_select", "gather", "take"])
"""Their result is what they read of the first argument."""
BAGS = frozenset({"_embedding_bag", "_embedding_bag_forward_only"})
"""Their result is a sum of the rows that they read."""


class Tables:
    """Watches how given tensors are read."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        behind: dict[int, list[torch.Tensor]] = {}
        for tensor in tensors:
            if tensor.layout == torch.strided:
                behind.setdefault(memory_of(tensor), []).append(tensor)
        self._sizes = {memory: distinct_bytes(held) for memory, held in behind.items()}
        self._alive = behind
        self._picked: dict[int, int] = {}
        self._whole: set[int] = set()

    def see(self, call: costs.Call) -> None:
        """One operator at work."""
        for place, tensor in enumerate(call.given):
            if tensor.layout != torch.strided or (memory := memory_of(tensor)) not in self._sizes:
                continue
            if (picked := _picked(call)) is not None and place == 0:
                self._picked[memory] = self._picked.get(memory, 0) + picked
            else:
                self._whole.add(memory)

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """They were read as a whole."""
        self._whole |= {memory_of(tensor) for tensor in tensors if tensor.layout == torch.strided}

    @property
    def spared(self) -> int:
        """Bytes of the tensors that no operator asked for."""
        picked = ((self._sizes[m], asked) for m, asked in self._picked.items() if m not in self._whole)
        return sum(max(0, size - asked) for size, asked in picked)


class TableMeter(Meter):
    """Counts operations, and how much of the given tensors a forward must read, on any device."""

    def __init__(self, tensors: Iterable[torch.Tensor], seconds: float = math.inf) -> None:
        super().__init__(seconds)
        self.tables = Tables(tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if not is_view(func):
            name = func._overloadpacket.__name__.rstrip("_")
            self.tables.see(costs.Call(name, func, args, kwargs or {}, out))
        return out


def _picked(call: costs.Call) -> int | None:
    """Bytes that an operator picks of its first argument; ``None`` where it reads it otherwise."""
    if call.func._schema.is_mutable:
        return None
    if call.name in PICKING:
        return costs.size_of(call.made[0])
    if call.name in BAGS:
        table, indices = call.given[:2]
        return indices.numel() * table.shape[1:].numel() * table.element_size()
    return None


def is_view(func: Any) -> bool:
    """Whether every result is memory of an argument that was not written."""
    aliases = [r.alias_info for r in func._schema.returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
