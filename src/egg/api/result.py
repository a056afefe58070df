"""What a run gives back: the best kernel, or the reference, and the story in numbers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.codec import to_json
from egg.core.stage import Stage
from egg.core.step import Decision
from egg.engine.state import RunState

SCHEMA = "egg.result/1"
KERNEL_FILE = "kernel.py"
RESULT_FILE = "result.json"


@dataclass(frozen=True)
class StageGain:
    """What one stage brought: the product of its promoted steps' gains; ``None`` where there was no base."""

    stage: Stage
    steps: int
    promoted: int
    ratio: float | None
    ended: str


def stage_gains(state: RunState) -> tuple[StageGain, ...]:
    """One row for every stage that was entered and left."""
    return tuple(
        _stage_gain(state, handoff.stage, handoff.reason)
        for handoff in state.handoffs
        if handoff.stage is not Stage.REGRADE
    )


def _stage_gain(state: RunState, stage: Stage, ended: str) -> StageGain:
    steps = state.steps_in(stage)
    promoted = [step for step in steps if step.decision is Decision.PROMOTED]
    ratio = None
    for step in promoted:
        if step.gain is not None:
            ratio = (ratio or 1.0) * step.gain.ratio
    if ratio is None and stage is not Stage.SEED:
        ratio = 1.0
    return StageGain(stage, len(steps), len(promoted), ratio, ended)


def kernel_source(state: RunState) -> str:
    """The file to use: the winner's, or the reference under the name a kernel file has."""
    if state.closed is not None and state.closed.candidate is not None:
        return state.sources[state.closed.candidate]
    why = state.closed.reason if state.closed is not None else "the run has not ended"
    note = f"# The program as it was given: {' '.join(why.split())}."
    return f"{note}\n{state.started.task.source.rstrip()}\n\n\nModelNew = Model\n"


def summary(state: RunState) -> dict[str, Any]:
    """The result as data, for programs."""
    winner = state.closed.candidate if state.closed is not None else None
    kernel = state.kernels.get(winner) if winner is not None else None
    best = state.best_kernel
    return {
        "schema": SCHEMA,
        "run": state.started.run,
        "task": state.started.task.name,
        "task_hash": state.started.task.hash,
        "ended": state.closed is not None,
        "verdict": state.closed.verdict if state.closed is not None else None,
        "reason": state.closed.reason if state.closed is not None else None,
        "stopped": state.closed.stopped if state.closed is not None else None,
        "kernel": winner,
        "evaluation": kernel.evaluation.to_json() if kernel is not None else None,
        "best": {"kernel": state.best, "score": to_json(best.score)} if best is not None else None,
        "base": state.base,
        "stages": to_json(stage_gains(state)),
        "steps": len(state.steps),
        "ledger": to_json(state.ledger),
    }


def write_result(folder: Path, state: RunState) -> None:
    """``result.json`` as things stand, and ``kernel.py`` once the run has ended."""
    _replace(folder / RESULT_FILE, json.dumps(summary(state), indent=2) + "\n")
    if state.closed is not None:
        _replace(folder / KERNEL_FILE, kernel_source(state))


def _replace(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
