"""Calls beside the captured one, put to the candidate's own process.

The process that answered the task's own questions is asked again, with inputs, weights and outputs in a
second memory of their forms. Only a change of constructor arguments, of mode or of dtype needs another
instance. What comes of it is an :class:`Outcome`; whether that is a fault is the gate's to say.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.evaluator.gates import after, build, by_chance
from egg.evaluator.gates.second import CHAOTIC, Beside, beside
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import finite_share
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.task.program import Program
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

ORDINARY = ("candidate.error", "build.compile", "limits.recursion", "build.import")
"""Faults that a caller sees as an exception of Python's."""
GROSS = 1e-2
"""A relative error beyond it comes from wrong elements and not from rounding."""
LEEWAY = 8.0
"""Times the conditioning that is allowed, where values are unusual."""
MOST_BUILT = 1 << 30
"""Bytes of weights: drawing more of them anew takes longer than all other calls together."""
NO_VERDICT = ("kernel.unsupported", "limits.memory", "limits.timeout")


class Answer(StrEnum):
    RIGHT = "right"
    RAISED = "raised"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """What became of one call: right, an exception, a wrong answer, or nothing that can be judged."""

    answer: Answer
    evidence: str = ""
    reason: str = ""
    """Of the fault, where one was the answer."""
    random: bool = False
    """Whether the reference draws random numbers there, and the candidate its own."""


def question(trial: Trial, change: Change) -> tuple[Reference, list[Any]]:
    """The reference that answers such a call, and inputs for it."""
    if change.builds:
        precision = change.precision or trial.policy.precision
        reference = Reference(change.program(trial.reference.program), precision, trial.device).beside()
        if change.wide:
            reference.widen()
        reference.reweigh()
    else:
        reference = trial.reference.beside()
    return reference, inputs_for(trial, change, reference.precision)


def inputs_for(trial: Trial, change: Change, precision: Precision) -> list[Any]:
    seed = secrets.randbits(48)
    return change.inputs(trial.reference.program.inputs(seed, trial.device, precision), seed)


@dataclass(frozen=True)
class Asking:
    """What is asked of a call besides its answer."""

    dense: tuple[int, ...] = ()
    """The outputs that are contiguous where the reference's are."""
    held: bool = False
    """Whether what it returned must outlast a later call."""


PLAIN = Asking()


def ask(trial: Trial, change: Change, asking: Asking = PLAIN) -> Outcome:
    """Put one call to the candidate and to the reference, and compare."""
    if change.builds and _bytes(trial.reference.initial) > MOST_BUILT:
        return Outcome(Answer.SKIPPED, "too large to be built once more")
    if change.training is not None:
        trial.connection.reweigh()  # running statistics, too, that are not those of a new module
    elif not change.builds:
        trial.level()
    return ask_as_it_is(trial, change, asking)


@contextmanager
def in_mode_of(change: Change, reference: Reference, inputs: Any) -> Iterator[None]:
    """With the reference in the mode that a change asks for, where it draws once before it is asked."""
    with reference.in_mode(change.training):
        if change.training is not None:
            with reference.spared():
                reference.draws(inputs)
        yield


def ask_as_it_is(trial: Trial, change: Change, asking: Asking = PLAIN) -> Outcome:
    """With the state that earlier calls left, on both sides."""
    try:
        reference, inputs = question(trial, change)
        if reference.writes != trial.reference.writes:
            return Outcome(Answer.SKIPPED, "forward writes to other inputs there")
        with in_mode_of(change, reference, inputs):
            return _asked(trial, change, reference, inputs, asking)
    except torch.OutOfMemoryError as error:
        return Outcome(Answer.SKIPPED, f"no memory for it: {error}"[:200])
    except TaskError as error:
        return Outcome(Answer.SKIPPED, f"the reference does not run there: {error.message}"[:200])
    except MachineError as error:
        return Outcome(Answer.SKIPPED, f"no memory for it: {error.message}"[:200])


def _asked(trial: Trial, change: Change, reference: Reference, inputs: list[Any], asking: Asking) -> Outcome:
    stateful = change.training is not None and _bytes(reference.initial) <= MOST_BUILT
    ours = after.state_of(reference) if stateful else {}
    began = Snapshot.of(reference.module) if change.builds else None
    case = reference.answer("beside", inputs)
    if change.strange:
        case = replace(case, leeway=LEEWAY)
        if min(finite_share(case.outputs), finite_share(case.golden)) < trial.reference.finite_share:
            return Outcome(Answer.SKIPPED, "the reference has no finite answer there")
    try:
        with beside(trial, reference, case, change, weights=stateful) as other:
            if began is not None:
                with began.restored():
                    build_anew(other, change, trial.reference.program)
            other.buffers.place(case)
            before = after.Before(ours, other.connection.candidate_state() if ours else {})
            reply = other.ask(case, change.training, keep=asking.held)
            if ours and (left := after.left_otherwise(other, before)):
                return Outcome(Answer.WRONG, left)
            try:
                other.checks.check(case, reply.outputs)
            except Refused as wrong:
                return _unlike(other, case, change, wrong)
            other.checks.check_inputs_unchanged(case)
            if other.checks.uncertain > CHAOTIC:
                return _inconclusive(other.checks.uncertain)
            left = _scattered(case, reply.outputs, asking.dense)
            if asking.held and not left:
                left = after.overwritten(other, case, change, inputs_for(trial, change, reference.precision))
            return Outcome(Answer.WRONG, left) if left else Outcome(Answer.RIGHT)
    except Refused as wrong:
        return Outcome(Answer.WRONG, wrong.evidence)
    except Fault as fault:
        return outcome_of(fault)


def _scattered(case: Case, outputs: Sequence[protocol.OutputForm], dense: tuple[int, ...]) -> str:
    """Which of the ``dense`` outputs is not contiguous where the reference's is, in words."""
    for at in dense:
        expected = case.outputs[at][1] if at < len(case.outputs) else None
        if not isinstance(expected, torch.Tensor) or not expected.is_contiguous():
            continue
        laid = torch.empty_strided(expected.shape, outputs[at].stride or (), device="meta")
        if not laid.is_contiguous():
            return (
                f"output {outputs[at].path} has strides {tuple(laid.stride())} where the reference's has "
                f"{tuple(expected.stride())}, and DOMAIN states the reference's layout"
            )
    return ""


def _bytes(state: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def build_anew(other: Beside, change: Change, program: Program) -> None:
    """Another instance, built as the reference was, with the reference's weights."""
    precision = None if change.precision is None else change.precision.value
    init = exchange.whole(change.init(program))
    described = other.connection.fresh(init=init, precision=precision, wide=change.wide)
    theirs = {n: (form.shape, form.dtype) for n, form in described.state.items()}
    ours = {n: (tuple(t.shape), str(t.dtype)) for n, t in other.reference.module.state_dict().items()}
    names, _ = build.match_parameters(ours, theirs, set(described.parameters))
    other.checks.names = names
    other.connection.agree_on(names)


def _unlike(other: Beside, case: Case, change: Change, wrong: Refused) -> Outcome:
    """A wrong answer; where the reference draws random numbers, only one that it would not draw is.

    Where inputs are degenerate, or unusual, a norm amplifies any order of summation: only gross errors are
    wrong there.
    Where the reference itself is far from the exact result, nothing can be concluded from other numbers.
    """
    if math.isfinite(wrong.relative) and other.checks.doubt > (GROSS if change.strange else CHAOTIC):
        return _inconclusive(other.checks.doubt)
    if (change.degenerate or change.strange) and wrong.relative < GROSS:
        return Outcome(Answer.RIGHT, "as far as rounding allows")
    if not other.reference.stochastic:
        return Outcome(Answer.WRONG, wrong.evidence)
    with other.reference.spared():
        strange = by_chance.unlikely(other, case, change.training)
    if strange:
        return Outcome(Answer.WRONG, strange)
    return Outcome(Answer.RIGHT, "random there: its draws are its own, and as likely", random=True)


def _inconclusive(error: float) -> Outcome:
    why = f"the reference's own relative error is {error:.1e} there: nothing can be concluded"
    return Outcome(Answer.SKIPPED, why)


def outcome_of(fault: Fault) -> Outcome:
    if fault.reason in ORDINARY:
        return Outcome(Answer.RAISED, fault.evidence, fault.reason)
    if fault.reason in NO_VERDICT:
        return Outcome(Answer.SKIPPED, f"{fault.reason}: {fault.evidence}"[:200], fault.reason)
    return Outcome(Answer.WRONG, f"{fault.reason}: {fault.evidence}", fault.reason)
