"""What a run came to, as one row: the verdict, the times, the structure, and where the seconds went."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from diagnosis import diagnosed
from rows import Row, significant
from structure import structure_of
from tasks import key_of

from egg import __version__
from egg.analysis.evaluated import profile_of
from egg.core.codec import to_json
from egg.core.evaluation import Accepted, Baseline, Evaluation, Interval, Measured, Rejected
from egg.core.events import Answered, Evaluated, Event, Proposed
from egg.core.policy import Level, Policy
from egg.core.source import Task
from egg.core.step import Step
from egg.engine.state import RunState
from egg.hardware.gpus import Gpu

SCHEMA = "egg.expert-row/1"
ACCEPTED = "accepted"
EVIDENCE = 200
"""Characters of a refusal's evidence that are kept."""


def blank(task: Task, verdict: str) -> Row:
    """The row of a task of which no more is known than why."""
    level, problem = key_of(task)
    return {
        "schema": SCHEMA,
        "level": level,
        "problem": problem,
        "name": task.name,
        "task": task.hash,
        "verdict": verdict,
    }


def row_of(state: RunState, events: Sequence[Event], final: Evaluation | None) -> Row:
    """``final`` is the evaluation that counts; without one, nothing was accepted."""
    task, settings = state.started.task, state.started.settings
    level = final.policy.level if final is not None else Level.QUICK
    return {
        **blank(task, _verdict(state, final)),
        **_measured(final, state.gpu),
        "attempts": _attempts(state, final),
        "steps": [_step(step) for step in state.steps],
        "structure": structure_of(state, final) if final is not None and final.accepted else None,
        "stopped": state.handoffs[-1].reason if state.handoffs else "",
        "seconds": _seconds(state, events),
        "evaluations": len(state.evaluations),
        "policy": to_json(Policy(settings.precision, settings.library_calls, level)),
        "budget": settings.budget.name,
        "versions": _versions(state, final),
        "kernel": final.candidate_hash if final is not None and final.accepted else None,
    }


# -- the verdict -------------------------------------------------------------------------------------


def _verdict(state: RunState, final: Evaluation | None) -> str:
    if final is not None:
        verdict = final.verdict
        return f"refused at {verdict.refusal.gate.value}" if isinstance(verdict, Rejected) else ACCEPTED
    refused = [a.refusal for step in state.steps for a in step.attempts if a.refusal is not None]
    if refused:
        return f"refused at {refused[-1].gate.value}"
    return f"no file: {state.steps[-1].reason if state.steps else 'the run ended before one was written'}"


def _attempts(state: RunState, final: Evaluation | None) -> list[dict[str, Any]]:
    """Every file that was proposed apart from sweeps, with what was said against it, at the end too."""
    attempts = [
        {
            "step": step.number,
            "origin": attempt.origin.value,
            "refused": attempt.signature,
            "evidence": attempt.refusal.evidence[:EVIDENCE] if attempt.refusal is not None else "",
        }
        for step in state.steps
        for attempt in step.attempts
    ]
    if final is not None and isinstance(final.verdict, Rejected):
        refusal = final.verdict.refusal
        refused = f"{refusal.gate.value}: {refusal.reason}"
        evidence = refusal.evidence[:EVIDENCE]
        attempts.append({"step": None, "origin": "winner", "refused": refused, "evidence": evidence})
    return attempts


def _step(step: Step) -> dict[str, Any]:
    return {
        "stage": step.stage.value,
        "change": step.plan.change if step.plan is not None else "",
        "decision": step.decision.value,
        "gain": significant(step.gain.ratio, 4) if step.gain is not None else None,
        "points": len(step.sweep.points) if step.sweep is not None else 0,
        "reason": step.reason[:EVIDENCE],
    }


# -- the figures -------------------------------------------------------------------------------------


def _measured(final: Evaluation | None, gpu: Gpu | None) -> dict[str, Any]:
    """Own share, times, floor and diagnosis of an accepted kernel; times only where a GPU measured."""
    if final is None or not isinstance(final.verdict, Accepted):
        return {}
    provenance, performance = final.verdict.provenance, final.verdict.performance
    profile = profile_of(final, gpu) if gpu is not None else None
    floor = (
        performance.floor_milliseconds
        if isinstance(performance, Measured)
        else performance.predicted_floor_milliseconds
    )
    figures: dict[str, Any] = {
        "own_share": provenance.own_share if provenance.library_ops else 1.0,
        "library_ops": dict(provenance.library_ops),
        "kernels": dict(provenance.kernels),
        "launches": sum(provenance.kernels.values()),
        "error": significant(final.verdict.correctness.relative_error, 3),
        "reference_error": significant(final.verdict.correctness.reference_error, 3),
        "predicted_ms": significant(profile.predicted_milliseconds) if profile is not None else None,
        "floor_ms": significant(floor),
        "diagnosis": diagnosed(final, gpu, floor) if gpu is not None else "",
    }
    if isinstance(performance, Measured):
        figures |= {
            "ms": interval(performance.milliseconds),
            "baselines": {b.name: _baseline(b) for b in performance.baselines},
            "missing": [w[:EVIDENCE] for w in final.warnings if w.startswith("no baseline")],
            "noise": significant(performance.noise_floor, 3),
            "faster": faster(performance),
        }
    return figures


def faster(performance: Measured) -> bool:
    """Against *every* baseline the lower end of the speedup's interval is above one plus the noise floor."""
    least = 1.0 + performance.noise_floor
    return all(baseline.speedup.low > least for baseline in performance.baselines)


def _baseline(baseline: Baseline) -> dict[str, Any]:
    return {"ms": interval(baseline.milliseconds), "speedup": interval(baseline.speedup)}


def interval(found: Interval) -> list[float | None]:
    """Median, low, high."""
    return [significant(value) for value in (found.median, found.low, found.high)]


def _versions(state: RunState, final: Evaluation | None) -> dict[str, str]:
    seen = final or next(iter(state.evaluations.values()), None)
    if seen is None:
        return {"egg": __version__, "python": platform.python_version()}
    machine = seen.machine
    return {
        "egg": __version__,
        "python": machine.python,
        "torch": machine.torch,
        "triton": machine.triton,
        "gpu": machine.gpu,
        "driver": machine.driver,
    }


# -- where the seconds went --------------------------------------------------------------------------


def _seconds(state: RunState, events: Sequence[Event]) -> dict[str, float]:
    """Of the run: its roles' answers, the judge on seeds and structures, and on what tuning tried."""
    tuning_steps = {step.number for step in state.steps if step.stage.tunes}
    proposed: dict[str, int] = {}
    for event in events:
        if isinstance(event, Proposed):
            proposed.setdefault(event.candidate, event.step)
    judged = [e.evaluation for e in events if isinstance(e, Evaluated)]
    tuning = sum(e.seconds for e in judged if e.contenders or proposed[e.candidate_hash] in tuning_steps)
    return {
        "writing": round(sum(e.seconds for e in events if isinstance(e, Answered)), 2),
        "judging": round(sum(e.seconds for e in judged) - tuning, 2),
        "tuning": round(tuning, 2),
    }
