"""Gradients beside the task's own call: forward and backward under grad mode, held to the reference's.

Under grad mode a file may take another way than without it. So what the call returns is compared as
everywhere, inputs must be what they were behind ``backward``, and the record of both is held to the terms.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.compare.compare import compare
from egg.evaluator.gates.beside import GROSS, Answer, build_anew, in_mode_of, outcome_of, question
from egg.evaluator.gates.second import CHAOTIC, Beside, beside
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Yardstick, converted, scope
from egg.evaluator.task.gradient_ways import PLAIN, Incoming, Way
from egg.evaluator.task.gradients import Differentiated, differentiated
from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import check_forbidden, check_host

OF_THE_ENGINE = ("add", "add_")
"""By which autograd itself adds up the gradients of what is used twice."""


SPREAD = 150.0
"""Times as large as the task's own inputs."""


class Gradient(StrEnum):
    """What becomes of gradients under grad mode."""

    NONE = "the reference has none"
    RIGHT = "right"
    RAISED = "backward raises"
    LOST = "lost without an error"
    WRONG = "wrong"
    UNKNOWN = "not tried"


def gradients(trial: Trial, change: Change, way: Way = PLAIN) -> tuple[Gradient, str]:
    """Call under grad mode and go back, where that is possible, in the way that is asked for.

    Going back takes memory and time on the reference's side too: only what a candidate does not refuse is
    asked.
    """
    if trial.reference.writes:
        return Gradient.UNKNOWN, "forward writes to its inputs: what it records is not followed"
    if change.training is not None:
        trial.connection.reweigh()
    elif not change.builds:
        trial.level()
    try:
        reference, inputs = question(trial, change)
        with in_mode_of(change, reference, inputs):
            inputs = _spread(inputs) if way.large else inputs
            with reference.spared() if trial.follows else nullcontext():
                case = reference.answer("under grad mode", inputs, seed=FORWARD_SEED)
            wanted = _ours(reference, case, Yardstick.ITSELF, way)
            if not any(wanted.requires):
                return Gradient.NONE, ""
            if wanted.error:
                return Gradient.UNKNOWN, f"the reference's own backward raises {wanted.error}"[:200]
            return _asked(trial, change, reference, case, wanted, way)
    except (TaskError, MachineError, torch.OutOfMemoryError) as error:
        return Gradient.UNKNOWN, str(error)[:200]


def _asked(
    trial: Trial, change: Change, reference: Reference, case: Case, wanted: Differentiated, way: Way
) -> tuple[Gradient, str]:
    try:
        with beside(trial, reference, case, change, backward=True) as other:
            if change.builds:
                build_anew(other, change, trial.reference.program)
            other.buffers.place(case)
            other.buffers.poison(0)
            slots = other.buffers.gradients
            for slot in slots.values():
                arenas.poison(other.buffers.view(slot))
            theirs = {ours: own for own, ours in other.connection.names.items()}
            renamed = {theirs.get(name, name): slot for name, slot in slots.items()}
            asked = replace(way, alone=theirs.get(way.alone, way.alone))
            reply = other.connection.request(
                protocol.Gradients(
                    other.buffers.call_set(case, 0), renamed, FORWARD_SEED, asked, change.training
                )
            )
            _check_whose(other, reply.record)
            return _Answered(other, change, case, wanted, reply, way).judged()
    except Fault as fault:
        outcome = outcome_of(fault)
        kind = {Answer.RAISED: Gradient.RAISED, Answer.WRONG: Gradient.WRONG}
        return kind.get(outcome.answer, Gradient.UNKNOWN), outcome.evidence


def _check_whose(other: Beside, record: protocol.Record) -> None:
    """The terms hold under grad mode too, for forward and for backward."""
    check_host(record)
    ops = Counter(record.ops) - Counter({name: record.ops.get(name, 0) for name in OF_THE_ENGINE})
    try:
        check_forbidden(other.policy, replace(record, ops=ops), moves=False)
    except Refused as seen:
        raise Refused(
            seen.reason, f"under grad mode, in forward or backward: {seen.evidence}", seen.hint
        ) from None


@dataclass(frozen=True)
class _Answered:
    """A call under grad mode: what was asked, what the reference has for it, what the candidate replied."""

    other: Beside
    change: Change
    case: Case
    wanted: Differentiated
    reply: protocol.Backward
    way: Way

    def judged(self) -> tuple[Gradient, str]:
        wanted, reply = self.wanted, self.reply
        compared = not self.other.reference.stochastic and not self.way.large
        if compared and (wrong := self._values()):
            return Gradient.WRONG, wrong
        lost = [at for at, required in enumerate(wanted.requires) if required]
        if len(reply.requires) != len(wanted.requires) or not all(reply.requires[at] for at in lost):
            return Gradient.LOST, "an output does not require a gradient where the reference's does"
        if reply.error:
            return Gradient.RAISED, reply.error
        if not reply.intact:
            return Gradient.WRONG, "backward changes the gradient of an output in place; others read it, too"
        try:
            self.other.checks.check_inputs_unchanged(self.case)
        except Refused:
            return Gradient.WRONG, "an input is another one behind backward"
        return self._compared()

    def _values(self) -> str:
        """What is wrong with what the call returned, by the rule for every call beside the task's own."""
        checks = self.other.checks
        try:
            checks.check(self.case, self.reply.outputs)
        except Refused as wrong:
            unclear = wrong.relative < GROSS if self.change.degenerate else checks.doubt > CHAOTIC
            return "" if unclear else f"what forward returns: {wrong.evidence}"
        return ""

    def _compared(self) -> tuple[Gradient, str]:
        other, way = self.other, self.way
        exact = _exact(other.reference, self.case, self.wanted, way)
        theirs = {ours: own for own, ours in other.connection.names.items()}
        for name, gradient in self.wanted.gradients.items():
            if gradient is None or name not in other.buffers.gradients or (
                not name.startswith("input ") and name not in theirs
            ):  # fmt: skip
                continue
            if theirs.get(name, name) not in self.reply.given:
                return Gradient.LOST, f"no gradient of {name}"
            golden = exact.gradients.get(name)
            if way.incoming in (Incoming.EXPANDED, Incoming.CONSTANT) and _cancels(gradient, golden):
                continue
            three = (
                other.buffers.view(other.buffers.gradients[name]),
                gradient,
                gradient if golden is None else golden,
            )
            error = compare(*three, other.policy.precision)
            if way.large and not _answered(gradient, golden, error.reference_relative):
                continue
            slight = (self.change.degenerate or way.large) and not error.problem and error.relative < GROSS
            if not error.passed and not slight:
                wrong = error.problem or f"relative error {error.relative:.2e}"
                return Gradient.WRONG, f"gradient of {name}: {wrong}"
        return Gradient.RIGHT, ""


def _cancels(gradient: torch.Tensor, golden: torch.Tensor | None) -> bool:
    """Whether the reference's own gradient is rounding, as a softmax's where all that come in are equal."""
    if golden is None:
        return False
    off = (gradient.double() - golden.double()).norm()
    return bool(off >= CHAOTIC * golden.double().norm())


def _spread(inputs: list[Any]) -> list[Any]:
    """Hundreds of what they are, where an exponential overflows; less in 16 bits."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        times = 16.0 if tensor.itemsize < 4 else SPREAD
        return restrided(tensor, lambda flat: flat * times)

    return map_tensors(inputs, change)


def _answered(gradient: torch.Tensor, golden: torch.Tensor | None, own: float) -> bool:
    """Whether the reference's own gradient is finite and near the exact one."""
    return golden is not None and bool(gradient.isfinite().all() & golden.isfinite().all()) and own < GROSS


def _exact(reference: Reference, case: Case, wanted: Differentiated, way: Way) -> Differentiated:
    if reference.yardstick is not Yardstick.FP64:
        return wanted
    try:
        return _ours(reference, case, Yardstick.FP64, way)
    except (TaskError, MachineError):
        return wanted


def _ours(reference: Reference, case: Case, yardstick: Yardstick, way: Way) -> Differentiated:
    """The reference's own gradients, of a copy: nothing of it stays with the module."""
    module, inputs = converted(reference.module, case.inputs, yardstick)
    torch.manual_seed(FORWARD_SEED)
    with scope(yardstick, None, reference.asked), reference.program.blaming("backward"):
        return differentiated(module, inputs, FORWARD_SEED, way=replace(way, between=False))
