"""What a step taught, as a noun: a change of one kind, for a task of one kind, and what came of it.

Lessons are a projection of a run's log: :func:`lessons_of` reads them off its events and off nothing
else, so projecting a log again gives the same lessons, and each is known by its run and step. Only
what a change did is a lesson. What happened to the machine, to a budget or to a conversation (no
usable reply, a plan sent back, a file written before, a chain of repairs broken off by a cap) says
nothing about the change, and is none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from egg.analysis.program import predicted_milliseconds
from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, UsageError
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.events import Evaluated, Event, RunStarted, StepClosed
from egg.core.lines import text_lines
from egg.core.stage import Category, Stage
from egg.core.step import Decision, Step
from egg.hardware.gpus import find
from egg.memory.signature import TaskSignature, signature_of

SCHEMA = "egg.lessons/1"
SLOWER_MEASURED, SLOWER_PREDICTED = 0.99, 0.95
"""Ratios below these are a loss; between them and a gain nothing was learned but that nothing came of it."""
LONGEST_NAME, LONGEST_TEXT = 200, 400
MOST_STEPS = 1_000_000


class LessonsError(UsageError):
    """A store or a file of lessons that cannot be used."""


class Verdict(StrEnum):
    """What came of a change."""

    PROMOTED = "promoted"
    NO_GAIN = "no gain"
    SLOWER = "slower"
    REFUSED = "refused"


@dataclass(frozen=True)
class Lesson:
    """One step of one run, as far as it concerns others."""

    run: str
    step: int
    """With ``run`` the identity: a step is never counted twice, however often it is read."""
    signature: TaskSignature
    gpu: str
    arch: str
    stage: Stage
    category: Category | None
    """``None`` for a seed, which follows no plan."""
    skill: str | None
    """The one the plan named."""
    predicted: float | None
    """The speedup the plan expected."""
    before: float | None
    """Milliseconds of the base; ``None`` where there was none."""
    after: float | None
    """Milliseconds of what came of it; ``None`` where it was refused."""
    gain: float | None
    """Over the base, drift between sessions taken out; larger than 1 is faster."""
    measured: bool
    """By a GPU; else the times are predictions."""
    verdict: Verdict
    failure: str
    """The last refusal's signature, ``correctness: correctness.error``; empty unless it was refused."""
    version: str
    """Of this package, when the run began."""
    when: str
    """UTC, ISO 8601: when the step ended."""

    def __post_init__(self) -> None:
        for name in ("run", "gpu", "arch", "version", "failure"):
            if not _text(getattr(self, name), LONGEST_TEXT):
                raise ValueError(f"{name} must be a short text on one line")
        if not (isinstance(self.when, str) and _MOMENT.fullmatch(self.when)):
            raise ValueError(f"when must be a moment in UTC, not {self.when!r:.80}")
        if not self.run or (self.skill is not None and not _name(self.skill)):
            raise ValueError("a run and a skill have names")
        if isinstance(self.step, bool) or not isinstance(self.step, int) or not 1 <= self.step <= MOST_STEPS:
            raise ValueError(f"steps count from 1, not {self.step!r:.80}")
        for name in ("predicted", "before", "after", "gain"):
            value = getattr(self, name)
            if value is not None and _positive(value) is None:
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        if (self.verdict is Verdict.REFUSED) != bool(self.failure):
            raise ValueError("a refused change has a failure signature, and no other has")
        if not isinstance(self.measured, bool):
            raise ValueError("measured is true or false")

    @property
    def identity(self) -> tuple[str, int]:
        return self.run, self.step

    @property
    def worked(self) -> bool:
        return self.verdict is Verdict.PROMOTED

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> Lesson:
        """:class:`ValueError` says what is wrong with ``data``."""
        if not isinstance(data, dict):
            raise ValueError(f"a lesson is an object, not {type(data).__name__}")
        try:
            return from_json(cls, data)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(str(error)) from error


# -- from a log ------------------------------------------------------------------------------------


def lessons_of(entries: Iterable[tuple[str, Event]]) -> Iterator[Lesson]:
    """The lessons of a run, from its events with the moment each was recorded.

    A time is the one known when the step ended: a later, more careful look at the same kernel does
    not change what was learned.
    """
    started: RunStarted | None = None
    signature = TaskSignature()
    times: dict[str, float] = {}
    on_gpu = False
    for at, event in entries:
        match event:
            case RunStarted():
                started, signature = event, signature_of(event.facts)
            case Evaluated(evaluation=evaluation) if started is not None:
                on_gpu = evaluation.machine.device == "cuda"
                if (time := _milliseconds(evaluation, started)) is not None:
                    times[evaluation.candidate_hash] = time
            case StepClosed(step=step) if started is not None:
                if (judged := _verdict(step, started)) is not None:
                    yield _lesson(started, signature, step, judged, times, on_gpu, at)
            case _:
                pass


def _verdict(step: Step, started: RunStarted) -> tuple[Verdict, str] | None:
    """What came of a step and how it failed; ``None`` where that says nothing about the change."""
    if step.decision is Decision.PROMOTED:
        return Verdict.PROMOTED, ""
    if step.decision is Decision.NOT_BETTER and step.gain is not None:
        least = SLOWER_MEASURED if step.gain.measured else SLOWER_PREDICTED
        return (Verdict.SLOWER if step.gain.ratio < least else Verdict.NO_GAIN), ""
    if step.decision is Decision.FAILED and len(step.attempts) > started.settings.budget.repairs:
        refused = [attempt.signature for attempt in step.attempts if attempt.refusal is not None]
        if refused:
            return Verdict.REFUSED, _fitted(refused[-1])
    return None


def _lesson(
    started: RunStarted,
    signature: TaskSignature,
    step: Step,
    judged: tuple[Verdict, str],
    times: dict[str, float],
    on_gpu: bool,
    at: str,
) -> Lesson:
    plan, gain = step.plan, step.gain
    return Lesson(
        run=_fitted(started.run),
        step=step.number,
        signature=signature,
        gpu=_fitted(started.facts.gpu.name),
        arch=_fitted(started.facts.gpu.arch),
        stage=step.stage,
        category=plan.category if plan is not None else None,
        skill=plan.skill if plan is not None and plan.skill is not None and _name(plan.skill) else None,
        predicted=plan.prediction.speedup if plan is not None else None,
        before=_positive(times.get(step.base or "")),
        after=_positive(times.get(step.candidate or "")),
        gain=_positive(gain.ratio) if gain is not None else None,
        measured=gain.measured if gain is not None else on_gpu,
        verdict=judged[0],
        failure=judged[1],
        version=started.version,
        when=at,
    )


def _milliseconds(evaluation: Evaluation, started: RunStarted) -> float | None:
    """Measured, or predicted as the engine predicts it; ``None`` for a kernel that does not stand."""
    if not evaluation.checked or not isinstance(evaluation.verdict, Accepted):
        return None
    performance = evaluation.verdict.performance
    if isinstance(performance, Measured):
        return performance.milliseconds.median
    gpu = find(started.facts.gpu.name) or find(performance.target)
    if gpu is None:
        return None
    return predicted_milliseconds(performance, gpu, sum(evaluation.verdict.provenance.library_ops.values()))


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def _name(text: object) -> bool:
    return bool(text) and _text(text, LONGEST_NAME)


def _text(value: object, longest: int) -> bool:
    """Whether it can stand in a table, on a terminal and in a prompt as it is."""
    return isinstance(value, str) and len(value) <= longest and value.isprintable()


def _fitted(text: str) -> str:
    """A run or a refusal may be called anything; beginning and end stay, since names differ there."""
    plain = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    if len(plain) <= LONGEST_TEXT:
        return plain
    return f"{plain[: LONGEST_TEXT - 101]}…{plain[-100:]}"


def _positive(value: float | None) -> float | None:
    """The number, where it is one that a time or a ratio can be."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


# -- as lines of JSON ------------------------------------------------------------------------------


def write_lines(lessons: Sequence[Lesson]) -> str:
    """A file of lessons: a line that says what follows, then one lesson a line."""
    head = {"schema": SCHEMA, "lessons": len(lessons)}
    return "".join(json.dumps(row) + "\n" for row in (head, *(lesson.to_json() for lesson in lessons)))


def read_lines(path: Path) -> tuple[Lesson, ...]:
    """The lessons in a file that :func:`write_lines` wrote; all of them, or an error with the line."""
    try:
        rows = text_lines(path, _EXPORTED)
    except UsageError as reason:
        raise LessonsError(reason.message, reason.hint) from None
    if not rows:
        raise LessonsError(f"{path} is empty", _EXPORTED)
    head = _row(path, *rows[0])
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        found = head.get("schema") if isinstance(head, dict) else None
        raise LessonsError(
            f"{path}, line {rows[0][0]}: expected the schema {SCHEMA!r}, found {found!r}", _EXPORTED
        )
    lessons = tuple(_decoded(path, number, line) for number, line in rows[1:])
    if head.get("lessons") != len(lessons):
        raise LessonsError(
            f"{path} says it holds {head.get('lessons')!r} lessons, but has {len(lessons)}",
            "it was cut short or edited: export it again",
        )
    return lessons


_EXPORTED = "a file of lessons is made by `egg lessons export FILE`"


def _row(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise LessonsError(f"{path}, line {number} is not JSON", _EXPORTED) from None


def _decoded(path: Path, number: int, line: str) -> Lesson:
    try:
        return Lesson.from_json(_row(path, number, line))
    except LessonsError:
        raise
    except (ValueError, EggError) as reason:
        raise LessonsError(f"{path}, line {number} is no lesson: {reason}", _EXPORTED) from None
