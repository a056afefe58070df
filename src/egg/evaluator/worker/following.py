"""Calls whose values are followed: whether own kernels computed, and whether the answer needs it."""

from __future__ import annotations

import torch

from egg.evaluator.operators import contributed, copied
from egg.evaluator.operators.contributed import Draw
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.transport import protocol
from egg.evaluator.transport.protocol import By
from egg.evaluator.worker.held import state_of
from egg.evaluator.worker.outputs import leaves_of
from egg.evaluator.worker.remembering import Remembering


class Following(Remembering):
    """Requests about calls that were followed."""

    def on_contributes(self, asked: protocol.Contributes) -> protocol.Contribution:
        """Whether own kernels computed; the calls are kept for what is asked next."""
        found = self._alike(asked.draws, aligned=asked.aligned)
        if len(found) < asked.draws:
            return protocol.Contribution(len(found), own=True)
        return protocol.Contribution(len(found), contributed.contributes(found))

    def on_copy(self, asked: protocol.Copy) -> None:
        """Call again, with copies in place of kernels, in every way."""
        assert self._launches is not None
        launches, arguments = self._launches, self._arguments(asked.call.inputs, asked.call.slots)

        def run(call: copied.Copied) -> None:
            assert self._module is not None
            self._put_back()
            call.begin(arguments)
            call.have(state_of(self._module))
            launches.reset()
            torch.manual_seed(asked.seed)
            with launches.around(call.launch), Recorder(fill_empties=_fresh, flow=call):
                result = self._call_checked(arguments)
            call.end([leaf for _, leaf in leaves_of(result)])

        draw = self._draws[asked.number]
        draw.copied.extend(copied.every_way(self._written, run, draw.seed))
        self._give_back(asked.call.slots)

    def on_needs(self, asked: protocol.Needs) -> protocol.Needed:
        found, self._draws = self._alike(len(self._draws), aligned=True), []
        match asked.by:
            case By.CARRIED:
                return protocol.Needed(not copied.carried(found))
            case By.EQUAL:
                return protocol.Needed(not copied.equal(found))
            case By.FINITE:
                return protocol.Needed(not copied.finite(found))

    def _alike(self, draws: int, *, aligned: bool) -> list[Draw]:
        found = contributed.alike(self._draws)
        return contributed.aligned(self._draws) if aligned and len(found) < draws else found


def _fresh(tensor: torch.Tensor) -> None:
    """New memory holds no value; integers may be places, and stay within the tensors that they are of."""
    tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0)
