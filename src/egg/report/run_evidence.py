"""What a reader needs to check a run, or to repeat it: how it was judged, where, and the hashes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.settings import Settings
from egg.engine.log import Entry
from egg.engine.state import RunState
from egg.report.numbers import TIMES, plural, seconds

Facts = tuple[tuple[str, str], ...]
"""Names and values, in order."""


@dataclass(frozen=True)
class Command:
    """A command to copy, and what it does."""

    line: str
    does: str


@dataclass(frozen=True)
class GateLine:
    gate: str
    passed: bool
    seconds: float
    notes: str


@dataclass(frozen=True)
class Evidence:
    judged: Facts
    """How the kernel was judged, and how well it did apart from time."""
    gates: tuple[GateLine, ...]
    environment: Facts
    identity: Facts
    """Names and hashes by which all this is found again."""
    commands: tuple[Command, ...]


def evidence_of(
    folder: str, entries: Sequence[Entry], state: RunState, evaluation: Evaluation | None, log_hash: str
) -> Evidence:
    """``evaluation`` is the last look at the kernel that the run returns; ``None`` where there is none."""
    records = evaluation.gates if evaluation is not None else ()
    return Evidence(
        judged=_judged(evaluation) if evaluation is not None else (),
        gates=tuple(GateLine(r.gate.value, r.passed, r.seconds, _notes(r.notes)) for r in records),
        environment=_environment(state.started.version, evaluation),
        identity=_identity(entries, state, evaluation, log_hash),
        commands=_commands(folder, state.started.settings, evaluation is not None),
    )


def _judged(evaluation: Evaluation) -> Facts:
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted):
        return ()
    correct, ran, performance = verdict.correctness, verdict.provenance, verdict.performance
    allowed = f"{correct.worst_max_error:.2f} of what is allowed (max), {correct.worst_rms_error:.2f} (rms)"
    relative = f"{correct.relative_error:.1e}; the reference's own is {correct.reference_error:.1e}"
    facts = [
        ("level", f"{evaluation.policy.level.value}, {seconds(evaluation.seconds)}"),
        ("correctness", f"{plural(correct.checks, 'check')} against an fp64 run of the reference"),
        ("worst error", allowed),
        ("relative error", relative),
        ("KernelBench's rule", "passes" if correct.kernelbench else "does not pass"),
        ("kernels that ran", _counted(ran.kernels) or "none"),
        ("library calls", _counted(ran.library_ops) or "none"),
    ]
    if ran.own_share is not None:
        facts.append(("own kernels", f"{ran.own_share:.0%} of the GPU time"))
    if isinstance(performance, Measured):
        wall = f"{performance.wall_speedup:.2f} times the speed of eager, launches included"
        facts.append(("noise floor", f"{performance.noise_floor:.2%}, the kernel against itself"))
        facts.append(("on the judge's own clock", wall))
    else:
        facts.append(("shapes run", performance.shapes))
    return tuple(facts)


def _environment(version: str, evaluation: Evaluation | None) -> Facts:
    facts = [("egg", version)]
    if evaluation is not None:
        machine = evaluation.machine
        facts += [
            ("GPU", machine.gpu or "none: nothing was measured"),
            ("driver", machine.driver),
            ("PyTorch", machine.torch),
            ("Triton", machine.triton),
            ("Python", machine.python),
            ("candidate confined by", ", ".join(machine.sandbox) or "nothing"),
        ]
    return tuple((name, value) for name, value in facts if value)


def _identity(
    entries: Sequence[Entry], state: RunState, evaluation: Evaluation | None, log_hash: str
) -> Facts:
    facts = [
        ("run", state.started.run),
        ("began", _when(entries[0].at)),
        ("last event", _when(entries[-1].at)),
        ("task", state.started.task.hash),
        ("kernel", evaluation.candidate_hash if evaluation is not None else ""),
        ("log", f"{plural(len(entries), 'event')}, SHA-256 {log_hash}"),
    ]
    return tuple((name, value) for name, value in facts if value)


def _commands(folder: str, settings: Settings, kernel: bool) -> tuple[Command, ...]:
    policy = f"--precision {settings.precision.value} --library-calls {settings.library_calls.value}"
    seek = ["egg optimize task.py --team", shlex.quote(settings.team), "--budget", settings.budget.name]
    seek += ["--model", shlex.quote(settings.model.name)] if settings.model is not None else []
    seek += ["--target", shlex.quote(settings.target)] if settings.target is not None else []
    again = Command(
        f"egg eval task.py kernel.py --level full {policy}",
        "judges the kernel again, with new seeds in new processes",
    )
    return (
        Command(
            f"egg replay {shlex.quote(folder)}",
            "repeats every decision from the log, without a model or a judge",
        ),
        *([again] if kernel else []),
        Command(f"{' '.join(seek)} {policy} --seed {settings.seed}", "searches anew, with the same options"),
    )


def _when(at: str) -> str:
    return at.replace("T", " ").split(".")[0].removesuffix("Z") + " UTC"


def _counted(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {TIMES}{count}" for name, count in ops.items())


def _notes(notes: Mapping[str, Any]) -> str:
    """What a gate noted, in a line; long lists by their length."""
    return "; ".join(f"{name.replace('_', ' ')}: {_note(value)}" for name, value in notes.items() if value)


def _note(value: Any) -> str:
    if isinstance(value, Mapping):
        lists = [item for item in value.values() if isinstance(item, list | tuple) and len(item) > 6]
        if lists and len(lists) == len(value):
            return f"{plural(len(lists[0]), 'value')} each of {', '.join(map(str, value))}"
        return ", ".join(f"{name} {_note(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_note, value)) if len(value) <= 8 else plural(len(value), "value")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:200]}\N{HORIZONTAL ELLIPSIS}"
