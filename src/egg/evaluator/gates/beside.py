"""Calls beside the captured one, put to the candidate's own process.

The process that answered the task's own questions is asked again, with inputs, weights and outputs in a
second memory of their forms. Only a change of constructor arguments, of mode or of dtype needs another
instance. What comes of it is an :class:`Outcome`; whether that is a fault is the gate's to say.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.compare.compare import NOT_KNOWN, LeafError, Usual, compare
from egg.evaluator.gates import build
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Case, Reference
from egg.evaluator.reference.yardstick import Yardstick, converted, scope
from egg.evaluator.task.gradient_ways import PLAIN, Incoming, Way
from egg.evaluator.task.gradients import Differentiated, differentiated
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange, protocol
from egg.evaluator.transport.arena import Layout
from egg.evaluator.transport.slots import Slot
from egg.evaluator.trial.buffers import Buffers, SlotSet, contiguous_form
from egg.evaluator.trial.checks import Checks, tensor_of
from egg.evaluator.trial.connection import COPY_SECONDS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import check_forbidden, check_host

ORDINARY = ("candidate.error", "build.compile", "limits.recursion", "build.import")
"""Faults that a caller sees as an exception of Python's."""
GROSS = 1e-2
"""A relative error beyond it comes from wrong elements and not from rounding."""
CHAOTIC = 0.1
"""Where the reference's own relative error is beyond it, answers cannot be distinguished."""
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
        leads = {at: _lead(tensor) for at, tensor in enumerate(self._case.tensors)}
        self.sets = [SlotSet.placed(layout, self._case, leads)]
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

    def fill(self, slot: Slot, tensor: torch.Tensor) -> None:
        whole = replace(slot, shape=(slot.nbytes // tensor.element_size(),), stride=(1,), lead=0)
        if slot.lead or not tensor.is_contiguous():
            flat = self.view(whole)
            flat.fill_(float("nan") if tensor.is_floating_point() else 0)
        super().fill(slot, tensor)


@dataclass
class BesideChecks(Checks):
    """By the ordinary rule, and by the error that the reference has at the task's own call."""

    allowed: Mapping[int, Usual] = field(default_factory=dict)
    """The reference's own error at the task's own call, by the output's place."""
    uncertain: float = 0.0
    """The largest relative error that the reference itself had here."""
    doubt: float = 0.0
    """The reference's relative error of the output compared last, here or at the task's own call."""

    def error(self, case: Case, position: int, got: Any, expected: Any, golden: Any) -> LeafError:
        error = super().error(case, position, got, expected, golden)
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
        self, trial: Trial, reference: Reference, case: Case, change: Change, *, backward: bool = False
    ) -> None:
        own = change.precision is None
        self.policy = trial.policy if own else replace(trial.policy, precision=change.precision)
        self.reference = reference
        self.buffers = SecondBuffers(reference, case, weights=change.builds, backward=backward)
        main = trial.connection
        self.connection = replace(main, reference=reference, buffers=self.buffers)
        allowed = trial.checks.usual if own else {}
        self.checks = BesideChecks(reference, self.policy, self.buffers, main.names, allowed=allowed)

    def ask(self, case: Case, training: bool | None) -> protocol.Forwarded:
        """One traced call. At other sizes a library may stand in where libraries are allowed at all."""
        self.buffers.make_room()
        self.buffers.poison(0)
        options = protocol.Options(traced=True, training=training)
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


def _lead(tensor: torch.Tensor) -> int:
    """Of the few elements that were laid before it on purpose; a view far into a tensor begins anew."""
    offset = int(tensor.storage_offset())
    return offset if offset <= 1 else 0


@contextmanager
def beside(
    trial: Trial, reference: Reference, case: Case, change: Change, *, backward: bool = False
) -> Iterator[Beside]:
    other = Beside(trial, reference, case, change, backward=backward)
    try:
        other.connection.attach(second=True)
        yield other
    finally:
        other.detach()


def question(trial: Trial, change: Change) -> tuple[Reference, list[Any]]:
    """The reference that answers such a call, and inputs for it."""
    if change.builds:
        precision = change.precision or trial.policy.precision
        reference = Reference(change.program(trial.reference.program), precision, trial.device)
        reference.reweigh()
    else:
        reference = trial.reference.beside()
    seed = secrets.randbits(48)
    given = reference.program.inputs(seed, trial.device, reference.precision)
    return reference, change.inputs(given, seed)


def ask(trial: Trial, change: Change) -> Outcome:
    """Put one call to the candidate and to the reference, and compare."""
    if change.builds and _bytes(trial.reference.initial) > MOST_BUILT:
        return Outcome(Answer.SKIPPED, "too large to be built once more")
    if change.training is not None:
        trial.connection.reweigh()  # running statistics, too, that are not those of a new module
    try:
        reference, inputs = question(trial, change)
        with reference.in_mode(change.training):
            if change.training is not None:
                reference.draws(inputs)
            return _asked(trial, change, reference, inputs)
    except torch.OutOfMemoryError as error:
        return Outcome(Answer.SKIPPED, f"no memory for it: {error}"[:200])
    except TaskError as error:
        return Outcome(Answer.SKIPPED, f"the reference does not run there: {error.message}"[:200])
    except MachineError as error:
        return Outcome(Answer.SKIPPED, f"no memory for it: {error.message}"[:200])


def _asked(trial: Trial, change: Change, reference: Reference, inputs: list[Any]) -> Outcome:
    case = reference.answer("beside", inputs)
    try:
        with beside(trial, reference, case, change) as other:
            if change.builds:
                _build(other, change, trial.reference.program)
            other.buffers.place(case)
            reply = other.ask(case, change.training)
            try:
                other.checks.check(case, reply.outputs)
            except Refused as wrong:
                return _unlike(other, case, change, wrong)
            other.checks.check_inputs_unchanged(case)
            if other.checks.uncertain > CHAOTIC:
                return _inconclusive(other.checks.uncertain)
    except Refused as wrong:
        return Outcome(Answer.WRONG, wrong.evidence)
    except Fault as fault:
        return _of(fault)
    return Outcome(Answer.RIGHT)


def _bytes(state: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def _build(other: Beside, change: Change, program: Program) -> None:
    """Another instance, built as the reference was, with the reference's weights."""
    precision = None if change.precision is None else change.precision.value
    init = exchange.whole(change.init(program))
    described = other.connection.fresh(init=init, precision=precision)
    theirs = {n: (form.shape, form.dtype) for n, form in described.state.items()}
    ours = {n: (tuple(t.shape), str(t.dtype)) for n, t in other.reference.module.state_dict().items()}
    names, _ = build.match_parameters(ours, theirs, set(described.parameters))
    other.checks.names = names
    other.connection.agree_on(names)


def _unlike(other: Beside, case: Case, change: Change, wrong: Refused) -> Outcome:
    """A wrong answer; where the reference draws random numbers, only one that ignores the generator is.

    Where inputs are degenerate a norm amplifies any order of summation: only gross errors are wrong there.
    Where the reference itself is far from the exact result, nothing can be concluded from other numbers.
    """
    if math.isfinite(wrong.relative) and other.checks.doubt > CHAOTIC:
        return _inconclusive(other.checks.doubt)
    if change.degenerate and wrong.relative < GROSS:
        return Outcome(Answer.RIGHT, "as far as rounding allows")
    if not other.reference.stochastic:
        return Outcome(Answer.WRONG, wrong.evidence)
    first = other.buffers.snapshot()
    other.buffers.poison(0)
    options = protocol.Options(training=change.training)
    other.connection.request(protocol.Forward(other.buffers.call_set(case, 0), FORWARD_SEED + 1, options))
    pairs = zip(first, other.buffers.outputs(), strict=True)
    if all(same_values(a, b) for a, b in pairs if a is not None and b is not None):
        return Outcome(Answer.WRONG, "it draws no random numbers where the reference does")
    return Outcome(Answer.SKIPPED, "random there, and its draws are its own")


def _inconclusive(error: float) -> Outcome:
    why = f"the reference's own relative error is {error:.1e} there: nothing can be concluded"
    return Outcome(Answer.SKIPPED, why)


def _of(fault: Fault) -> Outcome:
    if fault.reason in ORDINARY:
        return Outcome(Answer.RAISED, fault.evidence)
    if fault.reason in NO_VERDICT:
        return Outcome(Answer.SKIPPED, f"{fault.reason}: {fault.evidence}"[:200])
    return Outcome(Answer.WRONG, f"{fault.reason}: {fault.evidence}")


# -- gradients --------------------------------------------------------------------------------------------


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
    try:
        reference, inputs = question(trial, change)
        case = reference.answer("under grad mode", inputs, golden=False)
        wanted = _ours(reference, case, Yardstick.ITSELF, way)
    except (TaskError, MachineError, torch.OutOfMemoryError) as error:
        return Gradient.UNKNOWN, str(error)[:200]
    if not any(wanted.requires):
        return Gradient.NONE, ""
    if wanted.error:
        return Gradient.UNKNOWN, f"the reference's own backward raises {wanted.error}"[:200]
    try:
        with beside(trial, reference, case, change, backward=True) as other:
            other.buffers.place(case)
            slots, call = other.buffers.gradients, other.buffers.call_set(case, 0)
            for slot in slots.values():
                arenas.poison(other.buffers.view(slot))
            theirs = {ours: own for own, ours in trial.connection.names.items()}
            renamed = {theirs.get(name, name): slot for name, slot in slots.items()}
            reply = other.connection.request(
                protocol.Gradients(call.inputs, call.slots, renamed, FORWARD_SEED, way)
            )
            return _judged(other, reference, case, wanted, reply, way)
    except Fault as fault:
        outcome = _of(fault)
        kind = {Answer.RAISED: Gradient.RAISED, Answer.WRONG: Gradient.WRONG}
        return kind.get(outcome.answer, Gradient.UNKNOWN), outcome.evidence


def _judged(
    other: Beside,
    reference: Reference,
    case: Case,
    wanted: Differentiated,
    reply: protocol.Backward,
    way: Way,
) -> tuple[Gradient, str]:
    lost = [at for at, required in enumerate(wanted.requires) if required]
    if len(reply.requires) != len(wanted.requires) or not all(reply.requires[at] for at in lost):
        return Gradient.LOST, "an output does not require a gradient where the reference's does"
    if reply.error:
        return Gradient.RAISED, reply.error
    if not reply.intact:
        return Gradient.WRONG, "backward changes the gradient of an output in place; others read it, too"
    exact = _exact(reference, case, wanted, way)
    theirs = {ours: own for own, ours in other.connection.names.items()}
    for name, gradient in wanted.gradients.items():
        if gradient is None or name not in other.buffers.gradients or (
            not name.startswith("input ") and name not in theirs
        ):  # fmt: skip
            continue
        if theirs.get(name, name) not in reply.given:
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
        if not error.passed:
            return (
                Gradient.WRONG,
                f"gradient of {name}: {error.problem or f'relative error {error.relative:.2e}'}",
            )
    return Gradient.RIGHT, ""


def _cancels(gradient: torch.Tensor, golden: torch.Tensor | None) -> bool:
    """Whether the reference's own gradient is rounding, as a softmax's where all that come in are equal."""
    if golden is None:
        return False
    off = (gradient.double() - golden.double()).norm()
    return bool(off >= CHAOTIC * golden.double().norm())


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
    with scope(yardstick, None), reference.program.blaming("backward"):
        return differentiated(module, inputs, FORWARD_SEED, way=way)
