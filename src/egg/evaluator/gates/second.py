"""A second memory beside a trial's own: for calls of another form, put to the same candidate process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from egg.evaluator.compare.compare import NOT_KNOWN, LeafError, Usual, compare
from egg.evaluator.compare.part import Part
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Reference
from egg.evaluator.transport import protocol, together
from egg.evaluator.transport.arena import Layout
from egg.evaluator.transport.slots import Slot
from egg.evaluator.trial.buffers import Buffers, SlotSet, contiguous_form
from egg.evaluator.trial.checks import Checks, tensor_of
from egg.evaluator.trial.connection import COPY_SECONDS
from egg.evaluator.trial.surroundings import whole, with_gaps
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import check_forbidden, check_host

CHAOTIC = 0.1
"""Where the reference's own relative error is beyond it, answers cannot be distinguished."""


class SecondBuffers(Buffers):
    """A second memory for one call of another form, with room for weights and gradients where they are asked.

    What lies around an input in its own storage is NaN or zero, whatever its strides.
    """

    def __init__(self, reference: Reference, case: Case, *, weights: bool, backward: bool) -> None:
        self._case, self._weights, self._backward = case, weights, backward
        self.gradients: dict[str, Slot] = {}
        super().__init__(reference, 1)

    def _plan(self, input_sets: int) -> Layout:
        layout = Layout()
        self.sets = [SlotSet.placed(layout, self._case, together.groups(self._case.tensors))]
        held = self.reference.module.state_dict() if self._weights else {}
        self.weights = {name: layout.place(contiguous_form(value)) for name, value in held.items()}
        if self._backward:
            for name, tensor in self._differentiable():
                self.gradients[name] = layout.place(contiguous_form(tensor))
        self.bytes_per_call = layout.size
        return layout

    def _differentiable(self) -> Iterator[tuple[str, torch.Tensor]]:
        for at, tensor in enumerate(t for t in self._case.tensors if t.is_floating_point()):
            yield f"input {at}", tensor
        yield from self.reference.module.named_parameters()

    def _surround(self, slots: tuple[Slot, ...]) -> None:
        for first, *_ in with_gaps(slots):
            region = self.view(whole(first, first.dtype))
            region.fill_(float("nan") if region.is_floating_point() else 0)


@dataclass(slots=True)
class BesideChecks(Checks):
    """By the ordinary rule, and by the error that the reference has at the task's own call."""

    banded: ClassVar[bool] = False
    allowed: Mapping[int, Usual] = field(default_factory=dict)
    """The reference's own error at the task's own call, by the output's place."""
    uncertain: float = 0.0
    """The largest relative error that the reference itself had here."""
    doubt: float = 0.0
    """The reference's relative error of the output compared last, here or at the task's own call."""

    def error(
        self,
        case: Case,
        position: int,
        got: Any,
        expected: Any,
        golden: Any,
        part: Part | None = None,
    ) -> LeafError:
        error = Checks.error(self, case, position, got, expected, golden, part)
        usual = self.allowed.get(position, NOT_KNOWN)
        self.uncertain = max(self.uncertain, error.reference_relative)
        self.doubt = max(usual.rms, error.reference_relative)
        if error.passed or error.problem or not 0.0 < usual.rms <= CHAOTIC:
            return error
        three = (tensor_of(got), tensor_of(expected), tensor_of(golden))
        return compare(*three, self.policy.precision, usual=usual)


class Beside:
    """The same candidate in the same process, at a call of another form."""

    def __init__(
        self,
        trial: Trial,
        reference: Reference,
        case: Case,
        change: Change,
        *,
        backward: bool = False,
        weights: bool = False,
    ) -> None:
        own = change.precision is None and not change.wide and not change.dtypes
        declared = change.precision or trial.policy.precision
        self.policy = replace(trial.policy, precision=declared)
        self.reference = reference
        held = weights or change.builds
        self.buffers = SecondBuffers(reference, case, weights=held, backward=backward)
        main = trial.connection
        self.connection = replace(main, reference=reference, buffers=self.buffers)
        allowed = trial.checks.usual if own else {}
        self.checks = BesideChecks(
            reference,
            self.policy,
            self.buffers,
            main.names,
            computed=trial.checks.computed,
            partners=trial.checks.partners,
            allowed=allowed,
        )

    def ask(self, case: Case, training: bool | None, *, keep: bool = False) -> protocol.Forwarded:
        """One traced call, whose results the process may ``keep``.

        At other sizes a library may stand in where libraries are allowed at all.
        """
        self.buffers.make_room()
        self.buffers.poison(0)
        options = protocol.Options(traced=True, training=training, keep=keep)
        call = self.buffers.call_set(case, 0)
        reply = self.connection.request(protocol.Forward(call, case.seed, options))
        check_host(reply.record)
        check_forbidden(self.policy, reply.record, moves=False)
        return reply

    def detach(self) -> None:
        """Leave the second memory; a process that cannot is of no use any more."""
        if self.connection.process.alive:
            try:
                self.connection.request(protocol.Detach(), COPY_SECONDS)
            except Fault:
                self.connection.process.end()
        self.buffers.close()


@contextmanager
def beside(
    trial: Trial,
    reference: Reference,
    case: Case,
    change: Change,
    *,
    backward: bool = False,
    weights: bool = False,
) -> Iterator[Beside]:
    """With room for gradients, and for the module's ``weights``, where they are to come back."""
    other = Beside(trial, reference, case, change, backward=backward, weights=weights)
    try:
        other.connection.attach(second=True)
        yield other
    finally:
        other.detach()
