"""Correctness at the task's own size, on a machine without a GPU: as much of it as an interpreter can bear.

Every other question is put at a smaller size. A kernel may branch on several sizes at once, on the number of
a program that a smaller grid has not, on an offset that only the whole tensor reaches. So the task itself is
run once, where its tensors fit and its reference takes seconds: launches that are affordable run whole, of
the others the programs at the corners, near the integers that the kernel holds, and some drawn by lot
(:mod:`egg.evaluator.interpreter.excerpt`). What they wrote is held to the ordinary rule; elsewhere the
reference's own values stand in.

Host code may branch on sizes as well: each of these calls is held to all that other calls are held to (form
and strides, memory of its own, settings, whose work it is), and the same instance is called again
(:mod:`egg.evaluator.gates.repeated`). Then its host code runs many times while its kernels do nothing, which
takes no time to interpret: a file that counts its calls, and leaves the work to a library from some call on,
shows it there. What was not run is listed in the verdict.

One rule decides what becomes of a call that does not come to an end there. A fault that the file brings about
at this size alone is refused: what cannot be interpreted in a branch that only this size takes, memory that
only the file asks for. Where the task is large for this machine, by the reference's own operations and bytes
or by the time that interpreting takes, the verdict says that it was not run at its own size, and promises
nothing there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from egg.core.errors import TaskError
from egg.evaluator.gates import build, provenance, remembered, repeated, written
from egg.evaluator.gates.left import one_call
from egg.evaluator.gates.own_responses import OwnResponses
from egg.evaluator.gates.own_ways import Ways
from egg.evaluator.gates.unusual import tables
from egg.evaluator.process.handle import Fault
from egg.evaluator.process.sandbox import limits_for
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.task.program import Program
from egg.evaluator.task.rare import rare_integers
from egg.evaluator.task.rescale import Cost, cost_of
from egg.evaluator.task.unusual import constants
from egg.evaluator.transport import protocol
from egg.evaluator.trial.displaced import DisplacedTrial
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import NOT_RUN, Notes, Trial

MOST_BYTES = 640 << 20
"""Of inputs, parameters and outputs."""
MOST_FLOPS = 2e11
MOST_ELEMENTS = 600_000_000
"""That the reference makes or reads; with the flops, seconds of one CPU core in fp64."""
SECONDS = 90.0
REPEATED_FLOPS = 2e10
"""Up to so many the call is repeated."""
HALF_FLOPS = 2e10
"""The same in 16 bits, which CPUs compute slowly."""
ROOM = 8
"""How many times the bytes that the reference reads and makes a file may take."""
NO_VERDICT = ("limits.timeout", "limits.memory")
NO_TIME = "it took too long, or could not be interpreted whole"
FURTHER, BRIEFLY = 3, 0.6
"""Further calls, and the part of the seconds of the first that one in which fewer programs run takes."""
CARRIED, CARRIED_SECONDS = 6, 36.0
"""Calls from other states of the buffers, and the seconds for them."""
RESPONSES = 4
"""The reference with one thing changed takes so many times less than further calls."""
CONFIGURED_SECONDS = 20.0
"""For other configurations of autotuners."""
FEWEST_IDLE, MOST_IDLE, IDLE_SECONDS = 12, 48, 4.0
"""Calls without own kernels, and the seconds for them."""
BRANCH = "the answer must be right at the task's own size, in every program of its grid"
ALONE = "what new memory holds is loaded, or something is left in the module"
GAPS = "programs that ran leave out elements between those that they store"
LIMITED = (
    "take the memory that the task needs: at its own size the reference, its inputs and its outputs take a "
    "fraction of what this file asks for"
)


class _NotRun(Exception):
    """Nothing can be concluded from a call."""


def run(trial: Trial) -> Notes:
    offline = trial.offline
    assert offline is not None
    if not offline.changes:
        trial.own_size = "as interpreted"
        return {"own_size": trial.own_size}
    cost = _cost(trial)
    if isinstance(cost, str):
        return _listed(trial, {"own_size": f"{NOT_RUN}{cost}"})
    program = Program.load(offline.full.task)
    settings = replace(trial.settings, input_sets=2)
    try:
        reference = Reference(program, trial.policy.precision, trial.device)
        other = DisplacedTrial(
            reference, trial.candidate, trial.policy, settings, trial.forkserver, gpu=trial.gpu,
            restricted=trial.restricted, offline=offline,
        )  # fmt: skip
        other.checks.computed |= trial.checks.computed
        steady = trial.watch is not None and trial.watch.steady
        try:
            notes = _Own(other, steady, cost).examined()
            return _listed(trial, notes)
        finally:
            other.offline = None
            other.close()
    finally:
        program.unload()


def _listed(trial: Trial, notes: Notes) -> Notes:
    """With what was not run put down for the verdict."""
    size, why = notes["own_size"], NO_TIME
    left = notes.get("not_asked", ())
    if size.startswith(NOT_RUN):
        left, why = ("the task's own size",), size.removeprefix(NOT_RUN)
        trial.warnings.append(
            f"not run at the task's own size ({why}): the verdict holds for {trial.sizes()}"
        )
    trial.own_size = size
    trial.unasked |= dict.fromkeys(left, why)
    return notes


def _cost(trial: Trial) -> Cost | str:
    """Of the reference at the task's own size; why it is too much, where it is."""
    assert trial.offline is not None
    try:
        cost = cost_of(trial.offline.full.task)
    except TaskError as error:
        return f"its cost is not known: {error.message}"[:200]
    if cost.least_bytes > MOST_BYTES:
        return f"{cost.least_bytes >> 20} MiB of tensors"
    half = any(t.dtype in (torch.float16, torch.bfloat16) for t in trial.reference.sample.tensors)
    if cost.flops > (HALF_FLOPS if half else MOST_FLOPS) or cost.elements > MOST_ELEMENTS:
        return f"{cost.flops:.1e} operations on {cost.elements:.1e} elements"
    return cost


@dataclass
class _Own:
    """The task itself, put to one new process."""

    trial: Trial
    steady: bool
    """Whether a warm call launches own kernels at the size that was interpreted."""
    cost: Cost
    brief: bool = False
    """Whether further launches run fewer programs: there is no time for all."""
    launched: dict[str, int] = field(default_factory=dict)
    keeps: bool | None = None
    """Whether a call on other inputs changed what the file keeps; ``None`` before there was one."""
    gaps: bool = False
    """Whether programs that ran left out elements between those that they stored."""

    def examined(self) -> Notes:
        trial = self.trial
        if len(trial.buffers.sets) < 2:
            return {"own_size": f"{NOT_RUN}there is no memory for it"}
        try:
            build.run(trial)
            trial.level()
            began = time.perf_counter()
            began_at = Snapshot.of(trial.reference.module)
            case = _question(trial)
            with trial.reference.spared():
                trial.watch = provenance.rules_at(trial, case, steady=self.steady)
            reply = self._first(case)
            each = time.perf_counter() - began
            responses = OwnResponses(trial, began_at, trial.settings.own_seconds / RESPONSES)
            unasked = responses.suspect(case, whole=reply.whole)
            self.brief = not reply.whole or FURTHER * each > trial.settings.own_seconds
            left = self._again(case, BRIEFLY * each if self.brief else each, whole=reply.whole)
            responses.confirm(case, lambda asked: self._ask(asked).whole)
        except _NotRun as why:
            return {"own_size": f"{NOT_RUN}{why}"}
        except Fault as fault:
            if self._unblamed(fault):
                return {"own_size": f"{NOT_RUN}{fault.reason}"}
            raise _at_own_size(fault) from fault
        except Refused as wrong:
            raise _at_own_size(wrong) from None
        unasked += [GAPS] if self.gaps else []
        ran = [f"{name}: {count} of {total} programs" for name, total, count in reply.launches]
        return {
            "own_size": "whole" if reply.whole else "in part",
            "programs": ran[:12],
            "not_asked": [f"the task's own size, when {what}" for what in (*left, *unasked)],
        }

    def _first(self, case: Case) -> protocol.Excerpted:
        """Where PyTorch computes with what ran in part there is no answer: then the host code runs alone."""
        try:
            return self._ask(case, keep=True)
        except _NotRun:
            self._idle(case, time.perf_counter() + IDLE_SECONDS)
            raise

    def _unblamed(self, fault: Fault) -> bool:
        """Whether a call may have ended so because the task is large for this machine.

        What cannot be interpreted is in a branch that the file takes at this size alone. Time is the
        interpreter's, and memory the task's, as long as it is of the order of what the reference takes.
        """
        if fault.reason == "limits.memory":
            needed = self.cost.least_bytes + self.cost.elements * torch.float32.itemsize
            return ROOM * needed > limits_for(self.trial.device.type).resident
        return fault.reason in NO_VERDICT

    def _ask(
        self,
        case: Case,
        *,
        keep: bool = False,
        left: bool = False,
        fresh: bool = False,
        grad: protocol.GradMode = protocol.GradMode.OFF,
        index: int = 0,
    ) -> protocol.Excerpted:
        """One call, and every check of what it delivered and of how; inputs lie in the set ``index``."""
        trial = self.trial
        trial.buffers.place(case, index)
        trial.buffers.poison(0)
        masks = trial.buffers.sets[1].outputs
        call = replace(trial.buffers.call_set(case, 0), slots=trial.buffers.sets[index].inputs)
        request = protocol.Excerpt(call, masks, case.seed, keep, self.brief, left, fresh, grad)
        reply = trial.connection.request(request, SECONDS)
        answered = reply.answered
        if answered is None:
            raise _NotRun(reply.without)
        self.launched |= answered.record.launches
        if grad is not protocol.GradMode.ON:
            trial.see(answered.record)
        trial.check_generator(case, answered)
        numbers = trial.checks.check_form(case, answered.outputs)
        if reply.whole:
            trial.checks.check_values(case, trial.buffers.outputs(0), numbers)
        elif not written.anything(trial):
            raise _NotRun("no program that ran stores an element of an output")
        else:
            written.check(trial, case)
            self.gaps = self.gaps or written.gaps(trial)
        trial.checks.check_returned(case, answered)
        trial.checks.check_apart(case, answered.aliases)
        trial.checks.check_inputs_unchanged(case, index)
        return reply

    def _again(self, case: Case, each: float, *, whole: bool) -> list[str]:
        """Further calls of the instance; what could not be asked of it."""
        trial, seconds = self.trial, self.trial.settings.own_seconds
        if self.cost.flops > REPEATED_FLOPS:
            return ["it is called again"]
        left: list[str] = []
        try:
            trial.connection.request(protocol.Note(trial.reference.leaves))
            left += repeated.run(trial, case, self._again_once, each, seconds)
            if self.keeps:
                left += self._watch(each)
            left += self._alone(each) if whole and not self.brief else [ALONE]
            if trial.reference.reweighed:
                case = trial.reference.answer(case.label, case.inputs, own=False)
            ways = Ways(trial, case, self._again_once, each)
            left += [*ways.configured(CONFIGURED_SECONDS), *ways.under_grad(seconds)]
            left += [*ways.displaced(seconds), *ways.scaled(seconds), *ways.as_built(seconds)]
            left += ways.by_lot(seconds, whole=whole and not self.brief)
        except _NotRun as why:
            left = [*left, f"it is called again: {why}"]
        except Fault as fault:
            if not self._unblamed(fault):
                raise
            return [*left, f"it is called again: {fault.reason}"]
        self._idle(case, time.perf_counter() + IDLE_SECONDS)
        return left

    def _again_once(
        self,
        case: Case,
        *,
        keep: bool = False,
        grad: protocol.GradMode = protocol.GradMode.OFF,
        index: int = 0,
    ) -> Mapping[str, int]:
        answered = self._ask(case, keep=keep, grad=grad, index=index).answered
        if self.keeps is None:
            found = self.trial.connection.request(protocol.Follows())
            remembered.watchable(found)
            self.keeps = bool(found.tensors or found.new)
        return answered.launched if answered is not None else {}

    def _watch(self, each: float) -> list[str]:
        """Look for loads of what an earlier call left, as at the size that is interpreted
        (:mod:`egg.evaluator.gates.remembered`): programs at the corners run in every call."""
        if 2 * each > self.trial.settings.own_seconds:
            return ["what an earlier call left is loaded"]
        request, reference = self.trial.connection.request, self.trial.reference
        request(protocol.Note(reference.leaves))
        self._ask(reference.case("other inputs"))
        request(protocol.Follows())
        request(protocol.Rewind())
        third = reference.case("third inputs")
        self._ask(third)
        if reference.leaves or self.trial.follows:
            third = reference.answer(third.label, third.inputs, own=third.own)
        answered = self._ask(third, left=True).answered
        if answered is not None and answered.left:
            raise remembered.loaded(answered.left)
        return []

    def _alone(self, each: float) -> list[str]:
        """One call from the state that both sides have: it loads nothing from new memory that it has not
        stored there, and leaves in the module what the reference leaves. Where every program runs."""
        if 2 * each > self.trial.settings.own_seconds:
            return [ALONE]
        trial = self.trial
        trial.connection.request(protocol.Note(trial.reference.leaves))
        trial.connection.restore_weights()
        trial.level()

        def ask(case: Case) -> None:
            answered = self._ask(case, left=True, fresh=True).answered
            if answered is not None and answered.left:
                raise remembered.loaded(answered.left)

        states = CARRIED * each <= CARRIED_SECONDS
        one_call(trial, ask, states=states)
        trial.connection.restore_weights()
        moving = trial.reference.moving
        return [] if states or not moving else [f"{', '.join(sorted(moving)[:3])} hold other values"]

    def _idle(self, case: Case, until: float) -> None:
        """Calls in which own kernels do nothing: what else runs is held to the rules, as is what they leave.

        Small memories get what the kernels left there at the last call, so that host code which reads a flag
        goes on. It may fail all the same on values that no kernel has written; the next call counts on.
        """
        offline = self.trial.offline
        captured = offline.captured.kernels if offline is not None and offline.captured is not None else ()
        options = protocol.Options(skip=tuple(sorted({*self.launched, *captured})))
        for _ in range(FEWEST_IDLE + secrets.randbelow(MOST_IDLE - FEWEST_IDLE)):
            if time.perf_counter() > until:
                return
            try:
                reply = self.trial.ask(case, options=options)
            except Fault as fault:
                if fault.reason == "state.settings":
                    raise
                if not self.trial.connection.process.alive:
                    return
                continue
            self.trial.see(reply.record)


def _question(trial: Trial) -> Case:
    """A draw of the task's own, with integers that the file names among its integers where they may be."""
    known = constants(trial.candidate.source) | constants(trial.reference.program.task.source)
    inputs = rare_integers(trial.reference.draw(), known, tables(trial), secrets.randbits(48))
    try:
        return trial.reference.answer("the task's own size", inputs)
    except TaskError:
        return trial.reference.case("the task's own size")


def _at_own_size(seen: Fault | Refused) -> Refused:
    evidence = f"at the task's own size: {seen.evidence}"
    hint = LIMITED if seen.reason == "limits.memory" else BRANCH
    return Refused(seen.reason, evidence, hint, facts=replace(seen.facts, own_size=True))
