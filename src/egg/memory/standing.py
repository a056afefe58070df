"""What all lessons together say of a skill, for one task on one GPU in one stage.

Every lesson counts by how like its task and GPU are to the ones at hand. From those weighted counts
come an estimate of how often the skill works (a Beta distribution that begins undecided) and what it
brings when it does, and from both one factor that the skill's rank is multiplied with. Nothing can
push it out of [1/4, 4]: memory changes the order in which things are tried and forbids nothing, so a
store full of wrong lessons costs a few tries and no result. Two more rules keep wrong lessons small.
A run counts little more than once, however many of its steps say the same; and in a run whose own
steps contradict what was remembered, memory is believed less, or not at all (:func:`standings_for`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from egg.core.codec import from_json, to_json
from egg.core.roles import Brief
from egg.core.stage import Stage
from egg.core.step import Decision, Step
from egg.memory.lessons import Lesson
from egg.memory.signature import Card, TaskSignature, kinship, similarity

LEAST_WEIGHT, MOST_WEIGHT = 0.25, 4.0
FAR, NEAR = 1.0, 2.0
"""How many doublings certainty is worth: on tasks that are only like the one at hand, and on the same one."""
PRIOR = 1.0
"""Of each kind: as if the skill had worked once and failed once before."""
LEAST_LIKENESS = 0.05
"""Lessons less like the task at hand than this say nothing of it."""
PREDICTED = 0.5
"""What a lesson counts whose times no GPU measured."""
ONE_RUN = 1.5
"""The most that all lessons of one run on one skill count together: they share a task, a team, a day."""
ENOUGH = 12.0
"""Evidence beyond this is scaled down to it, so that what was true long ago can still be outvoted."""
USUAL_GAIN = 1.1
"""What a change that works brings; more lifts a skill, less holds it back, by a quarter at most."""
GAIN_SWAY = 1.25
LARGEST_GAIN = 4.0
"""Gains beyond it count as it."""
CONFIDENT = 0.2
"""A standing that leans less than this (in powers of two) predicts nothing that a run could contradict."""


@dataclass(frozen=True)
class Standing:
    """One skill, as memory sees it."""

    skill: str
    tried: int
    """Lessons that are enough like the task at hand."""
    worked: int
    success: float
    """Estimated chance that it works here; 0.5 where nothing is known."""
    gain: float
    """Typical speedup where it worked; 1 where it never did."""
    similarity: float
    """Of the lessons to the task and GPU at hand, on average, 0 to 1."""
    confidence: float
    """How much evidence there is, 0 (none) to 1."""
    weight: float
    """What the skill's rank is multiplied with, in [0.25, 4]; 1 changes nothing."""
    failure: str = ""
    """How it was refused most often; empty where it never was."""

    @property
    def sentence(self) -> str:
        """For people, and for a prompt."""
        if not self.tried:
            return f"{self.skill}: nothing is remembered of it"
        times = f"{self.worked} of {self.tried} {'try' if self.tried == 1 else 'tries'}"
        brought = f", typically {self.gain:.2f}x" if self.worked else ""
        failed = f"; refused most often at {self.failure}" if self.failure else ""
        return (
            f"{self.skill}: worked in {times} on tasks {self.similarity:.0%} like this one{brought}{failed} "
            f"(rank x{self.weight:.2f})"
        )


Standings = Mapping[str, Standing]
"""By skill."""


class Remembered(Protocol):
    """Whatever holds lessons: a store."""

    def lessons(self, *, stage: Stage | None = None) -> tuple[Lesson, ...]: ...


def standings(store: Remembered, signature: TaskSignature, gpu: Card, stage: Stage) -> dict[str, Standing]:
    """What ``store`` says of every skill it knows in ``stage``, by name."""
    return weighed(store.lessons(stage=stage), signature, gpu)


def weighed(lessons: Iterable[Lesson], signature: TaskSignature, gpu: Card) -> dict[str, Standing]:
    """Like :func:`standings`, of lessons at hand."""
    near: dict[str, list[tuple[Lesson, float]]] = {}
    of_task = cache(lambda task: similarity(signature, task))
    of_gpu = cache(lambda seen: kinship(gpu, seen))
    for lesson in lessons:
        if lesson.skill is None:
            continue
        likeness = of_task(lesson.signature) * of_gpu(_Seen(lesson.gpu, lesson.arch))
        if likeness >= LEAST_LIKENESS:
            near.setdefault(lesson.skill, []).append((lesson, likeness))
    return {skill: _standing(skill, found) for skill, found in sorted(near.items())}


@dataclass(frozen=True)
class _Seen:
    """The GPU of a lesson."""

    name: str
    arch: str


def _standing(skill: str, found: list[tuple[Lesson, float]]) -> Standing:
    counts = _counts(found)
    evidence = math.fsum(counts)
    scale = min(1.0, ENOUGH / evidence)
    worked = scale * math.fsum(c for (lesson, _), c in zip(found, counts, strict=True) if lesson.worked)
    evidence *= scale
    success = (PRIOR + worked) / (2 * PRIOR + evidence)
    gain = _typical_gain(found, counts)
    likeness = math.fsum(near for _, near in found) / len(found)
    refused = Counter(lesson.failure for lesson, _ in found if lesson.failure)
    return Standing(
        skill=skill,
        tried=len(found),
        worked=sum(lesson.worked for lesson, _ in found),
        success=round(success, 4),
        gain=round(gain, 4),
        similarity=round(likeness, 4),
        confidence=round(evidence / (evidence + 2 * PRIOR), 4),
        weight=round(_weight(success, gain, worked, likeness), 4),
        failure=min(refused, key=lambda failure: (-refused[failure], failure)) if refused else "",
    )


def _counts(found: list[tuple[Lesson, float]]) -> list[float]:
    """What each lesson counts: its likeness, less for a prediction, and one run no more than its due."""
    raw = [likeness * (1.0 if lesson.measured else PREDICTED) for lesson, likeness in found]
    of_run: dict[str, float] = {}
    for (lesson, _), count in zip(found, raw, strict=True):
        of_run[lesson.run] = of_run.get(lesson.run, 0.0) + count
    return [
        count * min(1.0, ONE_RUN / of_run[lesson.run]) for (lesson, _), count in zip(found, raw, strict=True)
    ]


def _typical_gain(found: list[tuple[Lesson, float]], counts: list[float]) -> float:
    """The weighted mean of the gains, on a log scale, of the tries that worked."""
    gains = [
        (min(max(lesson.gain, 1 / LARGEST_GAIN), LARGEST_GAIN), count)
        for (lesson, _), count in zip(found, counts, strict=True)
        if lesson.worked and lesson.gain is not None
    ]
    total = math.fsum(count for _, count in gains)
    return math.exp(math.fsum(math.log(gain) * count for gain, count in gains) / total) if total else 1.0


def _weight(success: float, gain: float, worked: float, likeness: float) -> float:
    """Up to four times the rank for what always works on this very task, a quarter for what never does.

    Of tasks that are merely alike, certainty is worth half as many doublings. The gain sways it as far
    as it is known, and only for what works more often than not: where lessons contradict each other as often
    as they agree, memory says nothing at all.
    """
    leaning = 2.0 * success - 1.0
    known = worked / (worked + 2 * PRIOR) if leaning > 0 else 0.0
    sway = min(max((gain / USUAL_GAIN) ** known, 1 / GAIN_SWAY), GAIN_SWAY)
    reach = FAR + (NEAR - FAR) * likeness**4
    return min(max(2.0 ** (leaning * reach) * sway, LEAST_WEIGHT), MOST_WEIGHT)


# -- within a run ----------------------------------------------------------------------------------


def standings_for(brief: Brief, remembered: Mapping[Stage, Standings]) -> dict[str, Standing]:
    """What memory says for the step that ``brief`` is about, as far as the whole run so far bears it out.

    Each step is held against what was remembered for its own stage: a store that was wrong about the
    structure is believed less about the mapping, too. Steps alone decide, so the same run comes to the
    same again.
    """
    handed = [step for handoff in brief.handoffs for step in handoff.tried]
    steps = [*handed, *brief.trajectory.steps]
    trust = _trust((remembered.get(step.stage, {}), step) for step in steps)
    return _believed(remembered.get(brief.assignment.stage, {}), trust)


def _trust(outcomes: Iterable[tuple[Standings, Step]]) -> float:
    """1 while nothing contradicts memory.

    A step that followed a skill memory praised and gained nothing, or one that memory warned of and
    gained, contradicts it; the other way round it agrees. As long as memory was not more often right
    than wrong it is not believed at all: the first wrong guess of a bad store is its last.
    """
    agreed, contradicted = 0, 0
    for remembered, step in outcomes:
        standing = remembered.get(step.plan.skill or "") if step.plan is not None else None
        leaning = math.log2(standing.weight) if standing is not None else 0.0
        if abs(leaning) < CONFIDENT or step.decision not in _JUDGED:
            continue
        if (leaning > 0) == (step.decision is Decision.PROMOTED):
            agreed += 1
        else:
            contradicted += 1
    return max(0, 1 + agreed - contradicted) / (1 + agreed + contradicted)


def _believed(remembered: Standings, trust: float) -> dict[str, Standing]:
    return {
        skill: replace(standing, weight=round(standing.weight**trust, 4))
        for skill, standing in remembered.items()
    }


_JUDGED = (Decision.PROMOTED, Decision.NOT_BETTER, Decision.FAILED)


# -- with a run ------------------------------------------------------------------------------------


def to_record(by_stage: Mapping[Stage, Standings]) -> dict[str, Any]:
    """As a run's first event keeps them, so that a replay is offered the same without the store."""
    return {stage.value: to_json(known) for stage, known in by_stage.items() if known}


def from_record(record: Mapping[str, Any]) -> dict[Stage, dict[str, Standing]]:
    """What :func:`to_record` wrote; a record of nothing for a run that began without a store."""
    return {Stage(stage): from_json(dict[str, Standing], known) for stage, known in record.items()}
