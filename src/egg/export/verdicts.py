"""A claimed evaluation beside one made here: whether the claim holds, and what differs."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.evaluation import Accepted, Evaluation, Measured


@dataclass(frozen=True)
class Row:
    what: str
    claimed: str
    here: str


def holds(claimed: Evaluation, here: Evaluation) -> bool:
    """Accepted here too; and faster than eager, where that is claimed and a GPU of that name measured it."""
    before, now = _measured(claimed), _measured(here)
    if not here.accepted:
        return False
    return before is None or now is None or before.gpu != now.gpu or now.faster or not before.faster


def rows(claimed: Evaluation, here: Evaluation) -> list[Row]:
    """What both say, line by line."""
    found = [
        Row("verdict", _verdict(claimed), _verdict(here)),
        Row("device", claimed.machine.gpu or "cpu", here.machine.gpu or "cpu"),
        Row("torch", claimed.machine.torch, here.machine.torch),
        Row("triton", claimed.machine.triton, here.machine.triton),
        Row("python", claimed.machine.python, here.machine.python),
        Row("relative error", _error(claimed), _error(here)),
    ]
    return [*found, Row("speed", _speed(claimed), _speed(here))]


def _verdict(evaluation: Evaluation) -> str:
    if isinstance(evaluation.verdict, Accepted):
        return "accepted"
    refusal = evaluation.verdict.refusal
    return f"rejected at {refusal.gate.value}: {refusal.evidence}"


def _error(evaluation: Evaluation) -> str:
    verdict = evaluation.verdict
    return f"{verdict.correctness.relative_error:.2g}" if isinstance(verdict, Accepted) else "unknown"


def _measured(evaluation: Evaluation) -> Measured | None:
    verdict = evaluation.verdict
    found = verdict.performance if isinstance(verdict, Accepted) else None
    return found if isinstance(found, Measured) else None


def _speed(evaluation: Evaluation) -> str:
    found = _measured(evaluation)
    if found is None:
        return "no GPU measured it"
    return ", ".join(f"{b.speedup.median:.2f}x {b.name}" for b in found.baselines)
