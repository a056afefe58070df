"""Correctness at the task's own size, on a machine without a GPU: as much of it as an interpreter can bear.

Every other question is put at a smaller size. A kernel may branch on several sizes at once, on the number of
a program that a smaller grid has not, on an offset that only the whole tensor reaches. So the task itself is
run once, where its tensors fit and its reference takes seconds: launches that are affordable run whole, of
the others the programs at the corners, near the integers that the kernel holds, and some drawn by lot
(:mod:`egg.evaluator.interpreter.excerpt`). What they wrote is held to the ordinary rule; elsewhere the
reference's own values stand in.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import torch

from egg.core.errors import TaskError
from egg.evaluator.compare.compare import compare
from egg.evaluator.gates import build
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
BRANCH = "the answer must be right at the task's own size, in every program of its grid"


def run(trial: Trial) -> Notes:
    offline = trial.offline
    assert offline is not None
    if not offline.changes:
        return {"own_size": "as interpreted"}
    too_much = _too_much(trial)
    if too_much:
        return {"own_size": f"not run: {too_much}"}
    program = Program.load(offline.full.task)
    settings = replace(trial.settings, input_sets=2)
    try:
        reference = Reference(program, trial.policy.precision, trial.device)
        other = Trial(
            reference, trial.candidate, trial.policy, settings, trial.forkserver, gpu=trial.gpu,
            restricted=trial.restricted, offline=offline,
        )  # fmt: skip
        try:
            return _examined(other)
        finally:
            other.offline = None
            other.close()
    finally:
        program.unload()


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


def _examined(trial: Trial) -> Notes:
    if len(trial.buffers.sets) < 2:
        return {"own_size": "not run: there is no memory for it"}
    try:
        build.run(trial)
        case = _question(trial)
        trial.buffers.place(case)
        trial.buffers.poison(0)
        call, masks = trial.buffers.call_set(case, 0), trial.buffers.sets[1].outputs
        reply = trial.connection.request(protocol.Excerpt(call, masks, case.seed), SECONDS)
        if reply.without:
            return {"own_size": f"not run: {reply.without}"}
        numbers = trial.checks.check_form(case, reply.outputs)
        if reply.whole:
            trial.checks.check_values(case, trial.buffers.outputs(0), numbers)
        elif not all(_right(trial, case, position) for position in range(len(case.outputs))):
            trial.checks.check_values(case, _filled(trial, case))
        trial.checks.check_inputs_unchanged(case)
    except Fault as fault:
        if fault.reason in NO_VERDICT:
            return {"own_size": f"not run: {fault.reason}"}
        raise _at_own_size(fault) from fault
    except Refused as wrong:
        raise _at_own_size(wrong) from None
    ran = [f"{name}: {count} of {total} programs" for name, total, count in reply.launches]
    return {"own_size": "whole" if reply.whole else "in part", "programs": ran[:12]}


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
