"""Accepted kernels by the kind of task they are for: a folder beside the store of lessons.

A lesson says that a kind of change works; an exemplar shows the kernel that came of it. It is read off the
log of a run that ended with a kernel, and it holds text: the program, the kernel, what changed. So it stays
in a folder of its own (``lessons.sqlite`` has ``lessons.kernels`` beside it), one file for each run, and
no export of lessons carries it.

Likeness is that of lessons (:mod:`egg.memory.signature`). A kernel that a GPU measured comes before one
that none did, and of two as like the one with the larger speedup.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.errors import MachineError
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.events import (
    ContractMade,
    Evaluated,
    Event,
    Inherited,
    Proposed,
    RunClosed,
    RunStarted,
    StepClosed,
)
from egg.core.exemplar import Exemplar, Won
from egg.core.source import content_hash
from egg.core.step import Contract, Decision, Step
from egg.memory.signature import Card, TaskSignature, kinship, signature_of, similarity

SCHEMA = "egg.exemplar/1"
FOLDER = ".kernels"
LEAST_LIKENESS = 0.4
"""Of 1: programs below it share too little."""
MOST_KEPT = 400
"""Files; the oldest go first."""
LONGEST_DIFF = 40_000
"""Characters."""
LONGEST_CHANGE = 600


@dataclass(frozen=True)
class Kept:
    """An exemplar as a file holds it: with the program and its signature."""

    exemplar: Exemplar
    signature: TaskSignature
    program: str
    """The source of the task."""
    schema: str = SCHEMA


@dataclass(frozen=True)
class _Card:
    name: str
    arch: str


# -- from a log ------------------------------------------------------------------------------------


def exemplar_of(entries: Iterable[tuple[str, Event]]) -> Kept | None:
    """What a run leaves, from its events; ``None`` where it has not ended with a kernel."""
    log = _Log()
    for at, event in entries:
        log.take(at, event)
    return log.kept()


class _Log:
    """What an exemplar needs of the events of a run."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._closed: tuple[str, RunClosed] | None = None
        self._first: str | None = None
        self._contract: Contract | None = None
        self._sources: dict[str, str] = {}
        self._verdicts: dict[str, Evaluation] = {}
        self._won: list[Step] = []

    def take(self, at: str, event: Event) -> None:
        match event:
            case RunStarted():
                self._started, self._first = event, event.start
            case Inherited(source=source):
                self._first = source
            case Proposed(candidate=name, source=source):
                self._sources[name] = source
            case Evaluated(evaluation=evaluation) if evaluation.checked and not evaluation.contenders:
                self._verdicts[evaluation.candidate_hash] = evaluation
            case ContractMade(contract=contract):
                self._contract = contract
            case StepClosed(step=step) if step.decision is Decision.PROMOTED:
                self._won.append(step)
            case RunClosed():
                self._closed = at, event
            case _:
                pass

    def kept(self) -> Kept | None:
        if self._started is None or self._closed is None or self._closed[1].candidate is None:
            return None
        at, closed = self._closed
        assert closed.candidate is not None
        source = self._sources[closed.candidate]
        milliseconds, speedup = _measured(self._verdicts.get(closed.candidate))
        started = self._started
        exemplar = Exemplar(
            run=started.run,
            task=started.task.name,
            gpu=started.facts.gpu.name,
            arch=started.facts.gpu.arch,
            source=source,
            diff=_diff(self._first or self._seed(), source),
            won=tuple(self._taught_by(step) for step in self._won),
            milliseconds=milliseconds,
            speedup=speedup,
            version=started.version,
            when=at,
            team=started.settings.team,
        )
        return Kept(exemplar, signature_of(started.facts), started.task.source)

    def _seed(self) -> str:
        """The first kernel that was accepted."""
        first = self._won[0].candidate if self._won else None
        return self._sources.get(first or "", "")

    def _taught_by(self, step: Step) -> Won:
        """A first kernel follows no plan: what it teaches is the structure that the stages kept."""
        plan, gain = step.plan, step.gain
        if plan is None:
            return Won(step.stage, None, _structure(self._contract), None)
        change = " ".join(plan.change.split())[:LONGEST_CHANGE]
        return Won(step.stage, plan.category, change, gain.ratio if gain else None, plan.skill)


def _measured(evaluation: Evaluation | None) -> tuple[float | None, float | None]:
    verdict = evaluation.verdict if evaluation is not None else None
    if not isinstance(verdict, Accepted) or not isinstance(verdict.performance, Measured):
        return None, None
    found = verdict.performance
    eager = next((b.speedup.median for b in found.baselines if b.name == "eager"), None)
    return found.milliseconds.median, eager


def _structure(contract: Contract | None) -> str:
    if contract is None:
        return "the first kernel that was right"
    kernels = "; ".join(f"{role.name}: {role.purpose}" for role in contract.kernels)
    return f"first kernel with {len(contract.kernels)} kernels: {kernels}"[:LONGEST_CHANGE]


def _diff(before: str, after: str) -> str:
    if not before or before == after:
        return ""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "began", "ended", n=2, lineterm="")
    return "\n".join(lines)[:LONGEST_DIFF]


# -- the folder ------------------------------------------------------------------------------------


def folder_of(store: Path) -> Path:
    """The folder of the kernels that go with a store of lessons."""
    return store.with_name(store.stem + FOLDER)


def keep(folder: Path, kept: Kept) -> Path:
    """Write one run's kernel, whole or not at all; the oldest files beyond the limit go."""
    path = folder / f"{content_hash(kept.exemplar.run)}.json"
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"schema": SCHEMA, **to_json(kept)}), encoding="utf-8")
        part.replace(path)
        for old in _newest_first(folder)[MOST_KEPT:]:
            old.unlink(missing_ok=True)
    except OSError as reason:
        part.unlink(missing_ok=True)
        raise MachineError(
            f"cannot keep a kernel in {folder}: {reason.strerror}", "make room, or use --no-lessons"
        ) from None
    return path


def all_kept(folder: Path) -> tuple[Kept, ...]:
    """Every kernel of the folder, the newest first. What is no such file, or of another version, is passed
    over: nothing depends on one example more."""
    found = [_read(path) for path in _newest_first(folder)]
    return tuple(kept for kept in found if kept is not None)


def recalled(
    folder: Path, signature: TaskSignature, gpu: Card, most: int, without: str = ""
) -> tuple[Exemplar, ...]:
    """The kernels of the programs most like one of ``signature``; not that of the run ``without``."""
    found = [
        replace(kept.exemplar, likeness=round(_likeness(kept, signature, gpu), 3))
        for kept in all_kept(folder)
    ]
    like = [one for one in found if one.likeness >= LEAST_LIKENESS and one.run != without]
    like.sort(key=lambda one: (-round(one.likeness, 1), one.speedup is None, -(one.speedup or 0.0), one.run))
    return tuple(like[:most])


def _likeness(kept: Kept, signature: TaskSignature, gpu: Card) -> float:
    theirs = _Card(kept.exemplar.gpu, kept.exemplar.arch)
    return similarity(kept.signature, signature) * kinship(theirs, gpu)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"), key=lambda path: (path.stat().st_mtime, path.name), reverse=True)


def _read(path: Path) -> Kept | None:
    try:
        data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return from_json(Kept, data) if data.get("schema") == SCHEMA else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
