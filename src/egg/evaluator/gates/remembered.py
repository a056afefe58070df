"""Answers that follow from what an earlier call left on the device.

Launches tell a candidate that remembers from one that computes only where it launches something else. A
kernel that finds its inputs unchanged, and leaves what it made of them the last time, launches the same: it
pays where an input has the same values in every draw of the task. So a call on other values is made, also of
those inputs; what it changed in the tensors that the candidate keeps is put back, in one tensor at a time,
and the call is repeated (:mod:`egg.evaluator.worker.kept`).

Without a GPU every load is seen: no kernel may load, and no operator read, what follows from the inputs of an
earlier call before this call has stored it anew (:mod:`egg.evaluator.interpreter.left`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.gates.correctness import meaningful
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import map_tensors, outputs_of, restrided
from egg.evaluator.task.unvaried import can_vary, other_values
from egg.evaluator.transport import protocol
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST = 8
"""Kept tensors of which each is put back alone."""
SMALLER = (0.75, 0.875)
"""Times what the task never varies, in two calls."""
HINT = (
    "compute everything that follows from the inputs on every call, from those that a task never varies too; "
    "what is kept may depend on weights, shapes and constants alone"
)

LEFT = (
    "store to work space, kept or new, before it is loaded in each call, mask loads of the rest of it, and "
    "clear flags; what is kept from call to call may depend on weights, shapes and constants alone"
)


def run(trial: Trial) -> str:
    """Returns what was done, in words."""
    if trial.settings.domain is not Probes.ALL and not trial.settings.remembered:
        return "not asked"
    kept = _Kept(trial, [trial.reference.draw(), *(_other_inputs(trial, by) for by in SMALLER)])
    if not kept.note():
        kept = _Kept(trial, [trial.reference.draw() for _ in range(3)])  # it may refuse what is never drawn
        if not kept.note():
            return "raises"
    kept.put_back()
    if trial.offline is not None and not kept.watch():
        return "raises"
    return f"{kept.found.tensors} tensors that follow from inputs are kept"


@dataclass
class _Kept:
    """What a file keeps between calls, and the questions to it.

    A file may raise where the judge has changed its memory: it compares that with what its host code knows.
    That ends one question, not the others, which are put to a new instance.
    """

    trial: Trial
    inputs: list[list[Any]]
    """Of three calls, all different."""
    found: protocol.Followed = field(default_factory=lambda: protocol.Followed(0))
    case: Case | None = None
    """The second call, while the instance is as it left it."""

    def note(self) -> bool:
        """Make the first two calls, with a note between them; whether there was an answer to both."""
        try:
            _answer(self.trial, "before other values", self.inputs[0])
            self.trial.connection.request(protocol.Note(self.trial.reference.leaves))
            self.case, _ = _answer(self.trial, "other values", self.inputs[1])
            self.found = self.trial.connection.request(protocol.Follows())
        except Fault as fault:
            self._survive(fault)
            return False
        if self.trial.offline is not None:
            watchable(self.found)
        return True

    def put_back(self) -> None:
        for number in range(min(self.found.tensors, MOST)):
            for values in (False,) if self.trial.offline is not None else (False, True):
                if self.case is None and not (self.note() and number < self.found.tensors):
                    return
                assert self.case is not None
                try:
                    self.trial.connection.request(protocol.PutBack(number, values=values))
                    _repeat(self.trial, self.case)
                except Fault as fault:
                    self._survive(fault)

    def watch(self) -> bool:
        """Look for loads of what a call left, from the same beginning; or where it raises there, without.

        Whether one of the two had an answer. A file that keeps nothing may find it in memory that it frees.
        """
        if not (self.found.tensors or self.found.new):
            return self._watched_once()
        for rewound in (True, False):
            if (self.case is None or not rewound) and not self.note():
                return False
            try:
                if rewound:
                    self.trial.connection.request(protocol.Rewind())
                _watch(self.trial, self.inputs[2])
            except Fault as fault:
                self._survive(fault)
            else:
                return True
        return False

    def _watched_once(self) -> bool:
        try:
            _watched(self.trial, "third values", self.inputs[2])
        except Fault as fault:
            self._survive(fault)
            return False
        return True

    def _survive(self, fault: Fault) -> None:
        self.trial.survive(fault)
        self.case = None


def _answer(
    trial: Trial, label: str, inputs: list[Any], options: protocol.Options | None = None
) -> tuple[Case, protocol.Forwarded]:
    case = trial.reference.answer(label, inputs, own=False)
    trial.buffers.place(case)
    reply = trial.ask(case, options=options)
    trial.check(case, reply)
    return case, reply


def _repeat(trial: Trial, case: Case) -> None:
    """Ask again; where buffers or attributes move with each call, the reference answers again too."""
    if trial.reference.moving or trial.reference.leaves:
        case = trial.reference.answer(case.label, case.inputs, own=False)
    trial.buffers.place(case)
    reply = trial.ask(case)
    what = "a tensor that the file keeps got back what it held after an earlier call"
    trial.expect(case, reply, "state.remembers", what, HINT)


def _watch(trial: Trial, inputs: list[Any]) -> None:
    """The call on other values has left what it has. There is another on ``inputs``, which came never before:
    what that leaves otherwise must not be loaded by the next on the same ones."""
    _answer(trial, "third values", inputs)
    _watched(trial, "the same values", inputs)


def _watched(trial: Trial, label: str, inputs: list[Any]) -> None:
    _, reply = _answer(trial, label, inputs, protocol.Options(left=True))
    if reply.left:
        raise loaded(reply.left)


def watchable(found: protocol.Followed) -> None:
    """What calls on other inputs change must be small enough to be watched."""
    if found.unwatched:
        evidence = f"a tensor of {found.unwatched >> 30} GiB is kept, and calls on other inputs change it"
        raise Refused("state.remembers", evidence, HINT)


def loaded(what: str) -> Refused:
    return Refused("state.remembers", what, LEFT)


def _other_inputs(trial: Trial, smaller: float) -> list[Any]:
    """Another draw, with other values of what the generator never varies where the reference takes them."""
    inputs = trial.reference.draw()
    kinds = iter(trial.reference.kinds)
    generator = torch.Generator().manual_seed(secrets.randbits(48))

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if next(kinds) is not Kind.FIXED:
            return tensor
        if tensor.is_floating_point():
            return restrided(tensor, lambda given: given * smaller)
        return other_values(tensor, generator) if can_vary(tensor) else tensor

    changed = map_tensors(inputs, other)
    try:
        with trial.reference.spared():
            return changed if meaningful(trial, outputs_of(trial.reference.run(changed))) else inputs
    except (TaskError, MachineError):
        return inputs
