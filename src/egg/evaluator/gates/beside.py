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
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Case, Reference, same_values
from egg.evaluator.reference.yardstick import Yardstick, converted, scope
from egg.evaluator.task.gradients import Differentiated, differentiated
from egg.evaluator.task.program import Program
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport import exchange
from egg.evaluator.transport.arena import Arena, Layout, Slot
from egg.evaluator.trial.trial import COPY_SECONDS, Refused, SlotSet, Trial, contiguous_form, tensor_of
from egg.evaluator.trial.watch import check_forbidden, check_host

ORDINARY = ("candidate.error", "build.compile", "limits.recursion", "build.import")
"""Faults that a caller sees as an exception of Python's."""
GROSS = 1e-2
"""A relative error beyond it comes from wrong elements and not from rounding."""
CHAOTIC = 0.1
"""Where the reference's own relative error is beyond it, no answer can be told from another."""
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


@dataclass
class Beside(Trial):
    """The same candidate in the same process, at a call of another form."""

    case: Case | None = None
    holds_weights: bool = False
    backward: bool = False
    """Whether there is room for gradients."""
    allowed: Mapping[int, Usual] = field(default_factory=dict)
    """The reference's own error at the task's own call, by the output's place."""
    uncertain: float = 0.0
    """The largest relative error that the reference itself had here."""
    doubt: float = 0.0
    """The reference's relative error of the output compared last, here or at the task's own call."""

    def _error(self, case: Case, position: int, got: Any, expected: Any, golden: Any) -> LeafError:
        error = super()._error(case, position, got, expected, golden)
        usual = self.allowed.get(position, NOT_KNOWN)
        self.uncertain = max(self.uncertain, error.reference_relative)
        self.doubt = max(usual.rms, error.reference_relative)
        if error.passed or error.problem or not 0.0 < usual.rms <= CHAOTIC:
            return error
        three = (tensor_of(got), tensor_of(expected), tensor_of(golden))
        return compare(*three, self.policy.precision, usual=usual)

    def _plan(self, sample: Case) -> Arena:
        case = self.case or sample
        layout = Layout()
        results = [leaf if isinstance(leaf, torch.Tensor) else None for _, leaf in case.outputs]
        self.sets = [
            SlotSet(
                [layout.place(t, _lead(t)) for t in case.tensors],
                [None if leaf is None else layout.place(contiguous_form(leaf)) for leaf in results],
            )
        ]
        held = self.reference.module.state_dict() if self.holds_weights else {}
        self.weights = {name: layout.place(contiguous_form(value)) for name, value in held.items()}
        self.gradients = {
            name: layout.place(contiguous_form(t)) for name, t in self._differentiable(case) if self.backward
        }
        self.bytes_per_call = layout.size
        return arenas.create(layout.size, self.device)

    def _differentiable(self, case: Case) -> Iterator[tuple[str, torch.Tensor]]:
        for at, tensor in enumerate(t for t in case.tensors if t.is_floating_point()):
            yield f"input {at}", tensor
        yield from self.reference.module.named_parameters()

    def _fill(self, slot: Slot, tensor: torch.Tensor) -> None:
        whole = replace(slot, shape=(slot.nbytes // tensor.element_size(),), stride=(1,), lead=0)
        if slot.lead or not tensor.is_contiguous():
            flat = self.view(whole)
            flat.fill_(float("nan") if tensor.is_floating_point() else 0)
        super()._fill(slot, tensor)

    def see(self, reply: Mapping[str, Any]) -> None:
        """At other sizes a library may stand in where libraries are allowed at all."""
        check_host(reply)
        check_forbidden(self.policy, reply, moves=False)

    def attach(self) -> None:
        self.request("attach", COPY_SECONDS, self._arena.fds(), handle=self._arena.handle(), second=True)

    def detach(self) -> None:
        """Leave the second memory; a process that cannot is of no use any more."""
        if self.process.alive:
            try:
                self.request("detach", COPY_SECONDS)
            except Fault:
                self.process.end()
        self._arena.close()


def _lead(tensor: torch.Tensor) -> int:
    """Of the few elements that were laid before it on purpose; a view far into a tensor begins anew."""
    offset = int(tensor.storage_offset())
    return offset if offset <= 1 else 0


@contextmanager
def beside(
    trial: Trial, reference: Reference, case: Case, change: Change, *, backward: bool = False
) -> Iterator[Beside]:
    policy = trial.policy if change.precision is None else replace(trial.policy, precision=change.precision)
    other = Beside(
        reference,
        trial.candidate,
        policy,
        replace(trial.settings, input_sets=1),
        trial.forkserver,
        sharing=trial.sharing,
        worker=trial.worker,
        names=trial.names,
        case=case,
        holds_weights=change.builds,
        backward=backward,
        allowed=trial.usual if change.precision is None else {},
    )
    try:
        other.attach()
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
        trial.reweigh()  # running statistics, too, that are not those of a new module
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
            other.place(case)
            reply = other.ask(case, traced=True, training=change.training)
            try:
                other.check(case, reply)
            except Refused as wrong:
                return _unlike(other, case, change, wrong)
            other.check_inputs_unchanged(case)
            if other.uncertain > CHAOTIC:
                return _inconclusive(other.uncertain)
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
    described = other.fresh(init=init, precision=precision)
    theirs = {n: (tuple(form["shape"]), form["dtype"]) for n, form in described["state"].items()}
    ours = {n: (tuple(t.shape), str(t.dtype)) for n, t in other.reference.module.state_dict().items()}
    names, _ = build.match_parameters(ours, theirs, set(described["parameters"]))
    other.agree_on(names)


def _unlike(other: Beside, case: Case, change: Change, wrong: Refused) -> Outcome:
    """A wrong answer; where the reference draws random numbers, only one that ignores the generator is.

    Where inputs are degenerate a norm amplifies any order of summation: only gross errors are wrong there.
    Where the reference itself is far from the exact result, nothing can be concluded from other numbers.
    """
    if math.isfinite(wrong.relative) and other.doubt > CHAOTIC:
        return _inconclusive(other.doubt)
    if change.degenerate and wrong.relative < GROSS:
        return Outcome(Answer.RIGHT, "as far as rounding allows")
    if not other.reference.stochastic:
        return Outcome(Answer.WRONG, wrong.evidence)
    first = other.snapshot()
    other.poison(0)
    again = other.set_request(case, 0)
    other.request("forward", **again, seed=FORWARD_SEED + 1, training=change.training)
    pairs = zip(first, other.outputs(), strict=True)
    if all(same_values(a, b) for a, b in pairs if a is not None and b is not None):
        return Outcome(Answer.WRONG, "it draws no random numbers where the reference does")
    return Outcome(Answer.SKIPPED, "random there, and its draws are its own")


def _inconclusive(error: float) -> Outcome:
    told = f"the reference's own relative error is {error:.1e} there: nothing can be concluded"
    return Outcome(Answer.SKIPPED, told)


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


def gradients(trial: Trial, change: Change) -> tuple[Gradient, str]:
    """Call under grad mode, everything floating requiring a gradient, and go back where that is possible.

    Going back takes memory and time on the reference's side too: only what a candidate does not refuse is
    asked.
    """
    try:
        reference, inputs = question(trial, change)
        case = reference.answer("under grad mode", inputs, golden=False)
        wanted = _ours(reference, case, Yardstick.ITSELF)
    except (TaskError, MachineError, torch.OutOfMemoryError) as error:
        return Gradient.UNKNOWN, str(error)[:200]
    if not any(wanted.requires):
        return Gradient.NONE, ""
    if wanted.error:
        return Gradient.UNKNOWN, f"the reference's own backward raises {wanted.error}"[:200]
    try:
        with beside(trial, reference, case, change, backward=True) as other:
            other.place(case)
            slots = {name: slot.to_json() for name, slot in other.gradients.items()}
            for slot in other.gradients.values():
                arenas.poison(other.view(slot))
            theirs = {ours: own for own, ours in trial.names.items()}
            renamed = {theirs.get(name, name): slot for name, slot in slots.items()}
            asked = other.set_request(case, 0)
            reply = other.request(
                "gradients",
                inputs=asked["inputs"],
                slots=asked["slots"],
                gradients=renamed,
                seed=FORWARD_SEED,
            )
            return _judged(other, reference, case, wanted, reply)
    except Fault as fault:
        outcome = _of(fault)
        kind = {Answer.RAISED: Gradient.RAISED, Answer.WRONG: Gradient.WRONG}
        return kind.get(outcome.answer, Gradient.UNKNOWN), outcome.evidence


def _judged(
    other: Beside, reference: Reference, case: Case, wanted: Differentiated, reply: dict[str, Any]
) -> tuple[Gradient, str]:
    lost = [at for at, required in enumerate(wanted.requires) if required]
    if len(reply["requires"]) != len(wanted.requires) or not all(reply["requires"][at] for at in lost):
        return Gradient.LOST, "an output does not require a gradient where the reference's does"
    if reply["error"]:
        return Gradient.RAISED, reply["error"]
    exact = _exact(reference, case, wanted)
    theirs = {ours: own for own, ours in other.names.items()}
    for name, gradient in wanted.gradients.items():
        if gradient is None or name not in other.gradients or (
            not name.startswith("input ") and name not in theirs
        ):  # fmt: skip
            continue
        if theirs.get(name, name) not in reply["given"]:
            return Gradient.LOST, f"no gradient of {name}"
        golden = exact.gradients.get(name)
        three = (other.view(other.gradients[name]), gradient, gradient if golden is None else golden)
        error = compare(*three, other.policy.precision)
        if not error.passed:
            return (
                Gradient.WRONG,
                f"gradient of {name}: {error.problem or f'relative error {error.relative:.2e}'}",
            )
    return Gradient.RIGHT, ""


def _exact(reference: Reference, case: Case, wanted: Differentiated) -> Differentiated:
    if reference.yardstick is not Yardstick.FP64:
        return wanted
    try:
        return _ours(reference, case, Yardstick.FP64)
    except (TaskError, MachineError):
        return wanted


def _ours(reference: Reference, case: Case, yardstick: Yardstick) -> Differentiated:
    """The reference's own gradients, of a copy: nothing of it stays with the module."""
    module, inputs = converted(reference.module, case.inputs, yardstick)
    torch.manual_seed(FORWARD_SEED)
    with scope(yardstick, None), reference.program.blaming("backward"):
        return differentiated(module, inputs, FORWARD_SEED)
