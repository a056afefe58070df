"""Rows made from evaluations, and from the state of a run.

The evaluation that counts is the last look at the kernel that the run would return. A run also has a row
where it would rather return the reference: an accepted kernel that is not faster is correct all the same,
and its row says how slow it is. Where nothing was accepted, the row tells the last refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from egg import __version__
from egg.analysis.evaluated import profile_of
from egg.bench.diagnosis import diagnosed
from egg.bench.families import WholeFamily, WorkFamily, family_of
from egg.bench.figures import LargestResources
from egg.bench.rows import Basis, NoKernel, Opponent, Passed, Refused, Row, Spent, Timing, row_of
from egg.bench.structure import outcomes_of, refusals_of, structure_of
from egg.core.evaluation import NOT_WAITED, Accepted, Evaluation, Gate, Machine, Measured, Rejected
from egg.core.policy import Level, Policy
from egg.core.settings import Settings
from egg.core.source import Task
from egg.engine.state import RunState
from egg.evaluator.static import kernelbench_rules
from egg.hardware.gpus import Gpu, find

DEFAULT_PRECISION = "(default precision)"
"""How the judge marks an opponent under PyTorch's own settings."""
DEGENERATE = "degenerate task:"
UNAUDITED = "the task could not be audited"
"""How the judge begins what it has to say of a task's audit."""
EVIDENCE = 300
"""Characters of a refusal's evidence, or of a reason, that are kept."""


def row_of_evaluation(
    task: Task,
    evaluation: Evaluation,
    *,
    family: WorkFamily = WholeFamily.UNKNOWN,
    spent: Spent | None = None,
    settings: Mapping[str, str] | None = None,
    run: str = "",
    notes: Mapping[str, Any] | None = None,
    gpu: Gpu | None = None,
    source: str | None = None,
) -> Row:
    """The row of a kernel for ``task``; without a run, what was spent is what judging it took. ``source`` is
    the kernel file's text, for KernelBench's static check.

    ``gpu`` is the one that was written for, where the evaluation does not name one that is in the table.
    """
    if evaluation.task_hash != task.hash:
        raise ValueError(f"an evaluation of {evaluation.task!r} is no answer to {task.name!r}")
    row = row_of(
        task,
        _verdict(evaluation, gpu),
        evaluation.policy,
        family=family,
        spent=spent or _judging([evaluation]),
        settings=settings,
        run=run,
        notes=notes,
    )
    return replace(
        row,
        kernel_sha256=evaluation.candidate_sha256,
        degenerate=_degenerate(evaluation),
        kernelbench_flags=flags_of(source) if source is not None else None,
        versions=_versions(evaluation.machine),
        warnings=evaluation.warnings,
    )


def row_of_run(
    state: RunState,
    *,
    final: Evaluation | None = None,
    wall_seconds: float | None = None,
    run: str = "",
    notes: Mapping[str, Any] | None = None,
) -> Row:
    """The row of a run that has ended. ``final`` is an evaluation outside it that counts instead of its
    own."""
    task, settings = state.started.task, state.started.settings
    counts = final or _last_word(state)
    judged = list(state.evaluations.values())
    own_final = final is not None and final not in judged
    if final is not None and own_final:
        judged.append(final)
    ledger = state.ledger
    spent = replace(
        _judging(judged),
        input_tokens=ledger.usage.input_tokens,
        output_tokens=ledger.usage.output_tokens,
        money=ledger.cost,
        unpriced_calls=ledger.unpriced_calls,
        wall_seconds=ledger.seconds if wall_seconds is None else wall_seconds,
        final_seconds=round(final.seconds, 3) if final is not None and own_final else 0.0,
    )
    known: dict[str, Any] = {
        "family": family_of(state.started.facts),
        "spent": spent,
        "settings": settings_of_row(settings),
        "run": run,
        "notes": notes,
    }
    if counts is not None:
        source = state.sources.get(counts.candidate_hash)
        row = row_of_evaluation(task, counts, gpu=state.gpu, source=source, **known)
        if isinstance(row.verdict, Passed):
            row = replace(row, verdict=replace(row.verdict, structure=structure_of(state, counts)))
    else:
        policy = Policy(settings.precision, settings.library_calls, Level.FULL)
        row = row_of(task, NoKernel(_why_none(state)), policy, **known)
    return replace(row, refusals=refusals_of(state, final), steps=outcomes_of(state))


def flags_of(source: str) -> tuple[str, ...]:
    """Rules for which KernelBench's static check calls a kernel file not valid."""
    return tuple(finding.rule for finding in kernelbench_rules.errors(source))


# -- what happened -----------------------------------------------------------------------------------


def _last_word(state: RunState) -> Evaluation | None:
    """Of the best kernel, or else the last refusal."""
    if state.best_kernel is not None:
        return state.best_kernel.evaluation
    refused = [e for e in state.evaluations.values() if isinstance(e.verdict, Rejected) and not e.contenders]
    return refused[-1] if refused else None


def _why_none(state: RunState) -> str:
    reasons = [attempt.objection for step in state.steps for attempt in step.attempts if attempt.objection]
    reasons += [step.reason for step in state.steps[-1:]]
    if state.closed is not None:
        reasons.append(state.closed.reason)
    return next((text[:EVIDENCE] for text in reasons if text), "the run ended before a kernel was written")


def _verdict(evaluation: Evaluation, gpu: Gpu | None) -> Passed | Refused:
    verdict, kernel = evaluation.verdict, evaluation.candidate_hash
    if isinstance(verdict, Rejected):
        refusal = verdict.refusal
        return Refused(kernel, refusal.gate, refusal.reason, refusal.evidence[:EVIDENCE])
    if not evaluation.checked:
        raise ValueError("an evaluation that stopped at compiling says nothing of a task's end")
    provenance, performance = verdict.provenance, verdict.performance
    measured = isinstance(performance, Measured)
    floor = performance.floor_milliseconds if measured else performance.predicted_floor_milliseconds
    named = find(performance.gpu if measured else performance.target) or gpu
    profile = profile_of(evaluation, named) if named is not None else None
    limiter, diagnosis = diagnosed(evaluation, profile, named, floor)
    return Passed(
        kernel=kernel,
        own_share=provenance.own_share,
        library_ops=dict(provenance.library_ops),
        launches=sum(provenance.kernels.values()),
        relative_error=verdict.correctness.relative_error,
        reference_error=verdict.correctness.reference_error,
        kernelbench=verdict.correctness.kernelbench,
        timing=_timing(performance, _rounds(evaluation)) if measured else None,
        floor_milliseconds=floor,
        predicted_milliseconds=profile.predicted_milliseconds if profile is not None else None,
        limiter=limiter,
        diagnosis=diagnosis,
        resources=LargestResources.of(performance.kernels),
        checks=verdict.correctness.checks,
        gates=tuple(dict.fromkeys(record.gate for record in evaluation.gates if record.passed)),
    )


def _timing(measured: Measured, rounds: Mapping[str, tuple[float, ...]]) -> Timing:
    return Timing(
        gpu=measured.gpu,
        milliseconds=measured.milliseconds,
        opponents=tuple(
            Opponent(*_named(b.name), b.milliseconds, b.speedup, rounds.get(b.name, ()))
            for b in measured.baselines
        ),
        noise_floor=measured.noise_floor,
        rounds=rounds.get("A", ()),
    )


def _named(name: str) -> tuple[str, Basis]:
    plain = name.removesuffix(DEFAULT_PRECISION)
    return plain.strip(), Basis.MATCHED if plain == name else Basis.DEFAULT


def _rounds(evaluation: Evaluation) -> dict[str, tuple[float, ...]]:
    """What every contestant took in each round, as the timing gate noted it; whole rounds only."""
    noted = [record.notes.get("times") for record in evaluation.gates if record.gate is Gate.TIMING]
    times = noted[-1] if noted else None
    if not isinstance(times, Mapping) or "A" not in times:
        return {}
    count = len(times["A"])
    return {
        name: tuple(float(f"{t:.6g}") for t in taken) for name, taken in times.items() if len(taken) == count
    }


def _degenerate(evaluation: Evaluation) -> bool | None:
    """By the task's audit, which ``full`` makes; without a warning it is sound only where it was audited."""
    if any(warning.startswith(DEGENERATE) for warning in evaluation.warnings):
        return True
    unaudited = any(warning.startswith(UNAUDITED) for warning in evaluation.warnings)
    examined = isinstance(evaluation.verdict, Accepted) or any(
        record.gate not in (Gate.STATIC, Gate.BUILD) for record in evaluation.gates
    )
    return False if examined and not unaudited and evaluation.policy.level is not Level.QUICK else None


def _judging(judged: list[Evaluation]) -> Spent:
    """A GPU is taken for as long as an evaluation on it lasts: no other process may use it meanwhile."""
    on_gpu = sum(e.seconds for e in judged if e.machine.device == "cuda")
    return Spent(
        evaluations=len(judged),
        gpu_seconds=on_gpu,
        waited=sum((e.waited for e in judged), NOT_WAITED),
        wall_seconds=sum(e.seconds for e in judged),
    )


def _versions(machine: Machine) -> dict[str, str]:
    versions = {
        "egg": __version__,
        "python": machine.python,
        "torch": machine.torch,
        "triton": machine.triton,
        "gpu": machine.gpu,
        "driver": machine.driver,
    }
    return {name: version for name, version in versions.items() if version}


def settings_of_row(settings: Settings) -> dict[str, str]:
    """How a kernel was sought, as a row says it."""
    found = {"team": settings.team, "budget": settings.budget.name, "seed": str(settings.seed)}
    model = {"model": settings.model.name} if settings.model is not None else {}
    return found | model | ({"without": ",".join(settings.without)} if settings.without else {})
