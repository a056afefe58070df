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
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from egg.core.errors import TaskError
from egg.evaluator.compare.compare import compare
from egg.evaluator.gates import build, provenance, remembered, repeated
from egg.evaluator.gates.unusual import tables
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.task.rare import rare_integers
from egg.evaluator.task.rescale import cost_of
from egg.evaluator.task.unusual import constants
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_BYTES = 640 << 20
"""Of inputs, parameters and outputs."""
MOST_FLOPS = 2e10
MOST_ELEMENTS = 600_000_000
"""That the reference makes or reads; with the flops, seconds of one CPU core in fp64."""
SECONDS = 90.0
MOST_COMPARED, MANY = 2_000_000, 100_000
"""Elements that are compared first."""
NO_VERDICT = ("limits.timeout", "limits.memory", "kernel.unsupported")
NOT_RUN, NO_TIME = "not run: ", "it took too long, or could not be interpreted whole"
FURTHER, BRIEFLY = 3, 0.6
"""Further calls, and the part of the seconds of the first that one in which fewer programs run takes."""
FEWEST_IDLE, MOST_IDLE, IDLE_SECONDS = 12, 48, 4.0
"""Calls without own kernels, and the seconds for them."""
BRANCH = "the answer must be right at the task's own size, in every program of its grid"


class _NotRun(Exception):
    """Nothing can be concluded from a call."""


def run(trial: Trial) -> Notes:
    offline = trial.offline
    assert offline is not None
    if not offline.changes:
        return {"own_size": "as interpreted"}
    too_much = _too_much(trial)
    if too_much:
        return _listed(trial, {"own_size": f"not run: {too_much}"})
    program = Program.load(offline.full.task)
    settings = replace(trial.settings, input_sets=2)
    try:
        reference = Reference(program, trial.policy.precision, trial.device)
        other = Trial(
            reference, trial.candidate, trial.policy, settings, trial.forkserver, gpu=trial.gpu,
            restricted=trial.restricted, offline=offline,
        )  # fmt: skip
        steady = trial.watch is not None and trial.watch.steady
        try:
            notes = _Own(other, steady).examined()
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
    trial.unasked |= dict.fromkeys(left, why)
    return notes


def _too_much(trial: Trial) -> str:
    assert trial.offline is not None
    try:
        cost = cost_of(trial.offline.full.task)
    except TaskError as error:
        return f"its cost is not known: {error.message}"[:200]
    if cost.least_bytes > MOST_BYTES:
        return f"{cost.least_bytes >> 20} MiB of tensors"
    if cost.flops > MOST_FLOPS or cost.elements > MOST_ELEMENTS:
        return f"{cost.flops:.1e} operations on {cost.elements:.1e} elements"
    return ""


@dataclass
class _Own:
    """The task itself, put to one new process."""

    trial: Trial
    steady: bool
    """Whether a warm call launches own kernels at the size that was interpreted."""
    brief: bool = False
    """Whether further launches run fewer programs: there is no time for all."""
    launched: dict[str, int] = field(default_factory=dict)
    keeps: bool | None = None
    """Whether a call on other inputs changed what the file keeps; ``None`` before there was one."""

    def examined(self) -> Notes:
        trial = self.trial
        if len(trial.buffers.sets) < 2:
            return {"own_size": "not run: there is no memory for it"}
        try:
            build.run(trial)
            began = time.perf_counter()
            case = _question(trial)
            trial.watch = provenance.rules_at(trial, case, steady=self.steady)
            reply = self._first(case)
            each = time.perf_counter() - began
            self.brief = not reply.whole or FURTHER * each > trial.settings.own_seconds
            left = self._again(case, BRIEFLY * each if self.brief else each)
        except _NotRun as why:
            return {"own_size": f"not run: {why}"}
        except Fault as fault:
            if fault.reason in NO_VERDICT:
                return {"own_size": f"not run: {fault.reason}"}
            raise _at_own_size(fault) from fault
        except Refused as wrong:
            raise _at_own_size(wrong) from None
        ran = [f"{name}: {count} of {total} programs" for name, total, count in reply.launches]
        return {
            "own_size": "whole" if reply.whole else "in part",
            "programs": ran[:12],
            "not_asked": [f"the task's own size, when {what}" for what in left],
        }

    def _first(self, case: Case) -> protocol.Excerpted:
        """Where PyTorch computes with what ran in part there is no answer: then the host code runs alone."""
        try:
            return self._ask(case, keep=True)
        except _NotRun:
            self._idle(case, time.perf_counter() + IDLE_SECONDS)
            raise

    def _ask(self, case: Case, *, keep: bool = False, left: bool = False) -> protocol.Excerpted:
        """One call, and every check of what it delivered and of how."""
        trial = self.trial
        trial.buffers.place(case)
        trial.buffers.poison(0)
        call, masks = trial.buffers.call_set(case, 0), trial.buffers.sets[1].outputs
        request = protocol.Excerpt(call, masks, case.seed, keep, self.brief, left)
        reply = trial.connection.request(request, SECONDS)
        answered = reply.answered
        if answered is None:
            raise _NotRun(reply.without)
        self.launched |= answered.record.launches
        trial.see(answered.record)
        trial.check_generator(answered)
        numbers = trial.checks.check_form(case, answered.outputs)
        if reply.whole:
            trial.checks.check_values(case, trial.buffers.outputs(0), numbers)
        elif not all(_right(trial, case, position) for position in range(len(case.outputs))):
            trial.checks.check_values(case, _filled(trial, case))
        trial.checks.check_returned(case, answered)
        trial.checks.check_apart(case, answered.aliases)
        trial.checks.check_inputs_unchanged(case)
        return reply

    def _again(self, case: Case, each: float) -> list[str]:
        """Further calls of the instance; what could not be asked of it."""
        trial, seconds = self.trial, self.trial.settings.own_seconds
        began = time.perf_counter()
        try:
            trial.connection.request(protocol.Note())
            left = repeated.run(trial, case, self._again_once, each, seconds)
            if self.keeps and not trial.reference.leaves:
                left += self._watch(each)
        except _NotRun as why:
            left = [f"it is called again: {why}"]
        except Fault as fault:
            if fault.reason not in NO_VERDICT:
                raise
            return [f"it is called again: {fault.reason}"]
        self._idle(case, began + seconds + IDLE_SECONDS)
        return left

    def _again_once(self, case: Case, *, keep: bool = False) -> Mapping[str, int]:
        answered = self._ask(case, keep=keep).answered
        if self.keeps is None:
            found = self.trial.connection.request(protocol.Follows())
            self.keeps = bool(found.tensors or found.new)
        return answered.launched if answered is not None else {}

    def _watch(self, each: float) -> list[str]:
        """Look for loads of what an earlier call left, as at the size that is interpreted
        (:mod:`egg.evaluator.gates.remembered`): programs at the corners run in every call."""
        if 2 * each > self.trial.settings.own_seconds:
            return ["what an earlier call left is loaded"]
        request, reference = self.trial.connection.request, self.trial.reference
        request(protocol.Note())
        self._ask(reference.case("other inputs"))
        request(protocol.Follows())
        request(protocol.Rewind())
        third = reference.case("third inputs")
        self._ask(third)
        answered = self._ask(third, left=True).answered
        if answered is not None and answered.left:
            raise remembered.loaded(answered.left)
        return []

    def _idle(self, case: Case, until: float) -> None:
        """Calls in which own kernels do nothing: what else runs is held to the rules, as is what they leave.

        Host code may fail on values that no kernel has written: then nothing follows from it.
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
                return
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
    return Refused(seen.reason, evidence, BRANCH, facts=replace(seen.facts, own_size=True))


def _right(trial: Trial, case: Case, position: int) -> bool:
    """Whether what was written of one output is right, seen among as many of the reference's own values.

    A comparison of the whole takes far longer; it is made only where this one finds fault.
    """
    got, mask, expected = (
        trial.buffers.outputs(0)[position],
        trial.buffers.outputs(1)[position],
        case.outputs[position][1],
    )
    if got is None or mask is None:
        return True
    written = (mask == 1).reshape(-1).nonzero().reshape(-1)
    if len(written) > MOST_COMPARED:
        written = written[torch.randint(len(written), (MOST_COMPARED,))]
    others = torch.randint(expected.numel(), (max(len(written), MANY),))
    wide = case.golden[position][1].reshape(-1)
    flat, known = got.reshape(-1), expected.reshape(-1)
    beside = known[others]
    error = compare(
        torch.cat((flat[written], beside)),
        torch.cat((known[written], beside)),
        torch.cat((wide[written], wide[others])),
        trial.policy.precision,
    )
    trial.checks.worst.checks += 1
    trial.checks.worst.take(error)
    return error.passed


def _filled(trial: Trial, case: Case) -> list[torch.Tensor | None]:
    """What was delivered where it was written, and the reference's value where no program of it ran."""
    filled: list[torch.Tensor | None] = []
    for got, mask, (_, expected) in zip(
        trial.buffers.outputs(0), trial.buffers.outputs(1), case.outputs, strict=True
    ):
        if got is None or mask is None:
            filled.append(None)
        else:
            filled.append(torch.where(mask == 1, got, expected))
    return filled
