"""What a candidate keeps between calls: noted, compared, put back, and watched in the interpreter."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import torch

from egg.evaluator.task.attributes import attributes_of
from egg.evaluator.transport import protocol
from egg.evaluator.worker.held import state_of
from egg.evaluator.worker.holding import Holding
from egg.evaluator.worker.launches import InterpretedLaunches
from egg.evaluator.worker.memories import Spared, memories

if TYPE_CHECKING:
    from egg.evaluator.interpreter.left import Left


class Remembering(Holding):
    """Requests about memory that lives from call to call."""

    def on_note(self, asked: protocol.Note) -> None:
        self._leaves = asked.leaves
        self._noted.note(self._spared())

    def on_follows(self, asked: protocol.Follows) -> protocol.Followed:
        changed = self._noted.compare(self._spared())
        return protocol.Followed(changed, self._noted.new, self._noted.unwatched)

    def on_put_back(self, asked: protocol.PutBack) -> None:
        assert self._inputs is not None
        self._noted.put_back(asked.number, self._spared(), self._inputs.held if asked.values else ())

    def on_rewind(self, asked: protocol.Rewind) -> None:
        self._noted.rewind(self._spared())

    def _left(self) -> Left:
        assert isinstance(self._launches, InterpretedLaunches)
        return self._launches.left(self._noted.left(self._spared()))

    def _live(self) -> int:
        """How many memories there are, without those that only a cycle of references holds."""
        gc.collect()
        return sum(1 for _ in memories(self._spared()))

    def _spared(self) -> Spared:
        """The memory of inputs, and the weights and attributes that the judge compares by name."""
        assert self._module is not None
        assert self._inputs is not None
        loaded = self._loaded.names if self._loaded is not None else {}
        state, shown = state_of(self._module), attributes_of(self._module) if self._leaves else {}
        named = (state.get(name) for name in loaded)
        left = (shown.get(path) for path in self._leaves)
        compared = (t for t in (*named, *left) if isinstance(t, torch.Tensor) and t.layout is torch.strided)
        noted = (held.untyped_storage().data_ptr() for held in self._noted.copies())
        return Spared(frozenset((*self._inputs.addresses, *noted)), tuple(compared))
