"""Inputs at addresses that are aligned to 16 bytes and no more, as slices of other tensors lie.

PyTorch's allocators align tensors to 64 bytes and more, and so is what the judge lays. A file that asks an
address, and goes another way where it is a multiple of more, would always be asked on one of its ways.
"""

from __future__ import annotations

import secrets

from egg.evaluator.transport.arena import ALIGNMENT, Layout
from egg.evaluator.trial.buffers import Buffers, SlotSet
from egg.evaluator.trial.trial import Trial

LEAST = 16
"""Bytes: the widest load, and what a descriptor needs."""


class DisplacedBuffers(Buffers):
    """Those of the second set and of all behind it lie like that."""

    def _placed(self, layout: Layout, index: int) -> SlotSet:
        if index:
            odd = 1 + 2 * secrets.randbelow(ALIGNMENT // LEAST // 2)
            layout.size += -layout.size % ALIGNMENT + LEAST * odd
        placed = super()._placed(layout, index)
        layout.size += -layout.size % ALIGNMENT
        return placed


class DisplacedTrial(Trial):
    """With such inputs in its second set."""

    def _make_buffers(self) -> Buffers:
        return DisplacedBuffers(self.reference, self.settings.input_sets)
