"""Does memory help, and can it harm? The same tasks without lessons, with good ones and with false ones.

Every run is a whole run of the engine, with the selection that users get; only the team and the judge
are scripted (see ``world.py``), so the figures are exact and the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from world import SKILLS_PER_STAGE, STAGES, Follower, World, worlds, write_skills

from egg.api.lessons import recall
from egg.api.runs import advance, start
from egg.core.events import Evaluated
from egg.core.facts import Facts
from egg.core.settings import Settings
from egg.core.stage import Stage
from egg.engine.budgets import BUDGETS
from egg.engine.log import read_log
from egg.engine.scripted import ScriptedJudge
from egg.knowledge.advisor import KnowledgeAdvisor
from egg.knowledge.catalogue import load
from egg.knowledge.skill import Catalogue
from egg.memory.lessons import Lesson, Verdict, lessons_of
from egg.memory.store import LessonStore

MOMENT = "2026-01-01T00:00:00.000Z"
TERMS = {
    "standard": replace(BUDGETS["standard"], repairs=1),
    "deep": replace(BUDGETS["deep"], repairs=1),
    "exhaustive": replace(
        BUDGETS["deep"],
        name="exhaustive",
        steps={Stage.SEED: 1, **dict.fromkeys(STAGES, SKILLS_PER_STAGE)},
        patience=SKILLS_PER_STAGE,
        repairs=1,
    ),
}
"""Budgets as users have them, where a bad order costs the result; and one that tries everything, where it
can only cost the way there."""
SAME = 1.0005
"""Two times within this factor are the same."""


@dataclass(frozen=True)
class Outcome:
    """One run: its best time, and every evaluation's time on the way there (``None``: refused)."""

    task: str
    best: float
    times: tuple[float | None, ...]
    lessons: tuple[Lesson, ...]

    def until(self, milliseconds: float) -> int | None:
        """Evaluations until something as fast as ``milliseconds`` was found; ``None`` where nothing was."""
        for number, time in enumerate(self.times, 1):
            if time is not None and time <= milliseconds * SAME:
                return number
        return None


def run(world: World, catalogue: Catalogue, lessons: Iterable[Lesson], budget: str, name: str) -> Outcome:
    """One task under one store of lessons."""
    with tempfile.TemporaryDirectory() as place:
        folder, store = Path(place) / "run", Path(place) / "lessons.sqlite"
        known = tuple(lessons)
        if known:
            with LessonStore(store) as kept:
                kept.add(known)
        remembered = recall(store, world.facts)
        advisor = KnowledgeAdvisor(catalogue, tokens=1_000_000, lessons=remembered, most=len(catalogue))
        settings = Settings("scripted", TERMS[budget], device="cuda:0", target="H200")
        start(folder, world.task, settings, _without_floor(world.facts), name=name)
        team, judge = Follower(catalogue), ScriptedJudge(world.act)
        state = advance(folder, lambda started, journal: team, judge, advisor=advisor).state
        entries = read_log(folder)
        quick = [
            e.event for e in entries if isinstance(e.event, Evaluated) and e.event.job.endswith(".quick")
        ]
        best = state.best_kernel
        assert best is not None
        return Outcome(
            world.task.name,
            best.score.milliseconds.median,
            tuple(_time(event) for event in quick),
            tuple(lessons_of((MOMENT, entry.event) for entry in entries)),
        )


def _without_floor(facts: Facts) -> Facts:
    """The scripted times have nothing to do with the real roofline."""
    return replace(facts, gpu=replace(facts.gpu, floor_milliseconds=None))


def _time(event: Evaluated) -> float | None:
    told = event.evaluation.to_json()["verdict"]
    return told["performance"]["milliseconds"]["median"] if told["kind"] == "accepted" else None


# -- the stores ------------------------------------------------------------------------------------


def turned(lessons: Iterable[Lesson], name: str = "false") -> tuple[Lesson, ...]:
    """The same lessons with the opposite outcome: what worked failed, what failed worked splendidly."""
    return tuple(_turned(lesson, name) for lesson in lessons if lesson.skill is not None)


def _turned(lesson: Lesson, name: str) -> Lesson:
    told = replace(lesson, failure="", verdict=Verdict.NO_GAIN, run=f"{name}-{lesson.run}")
    if lesson.worked:
        return replace(told, verdict=Verdict.SLOWER, gain=0.5, after=2.0)
    return replace(told, verdict=Verdict.PROMOTED, gain=2.0, after=0.5)


def arms(first: Sequence[Outcome]) -> dict[str, list[tuple[Lesson, ...]]]:
    """Which lessons each task is given, by the name of the experiment."""
    everything = tuple(lesson for outcome in first for lesson in outcome.lessons)
    others = [tuple(x for o in first if o.task != own.task for x in o.lessons) for own in first]
    poison = tuple(x for n in range(5) for x in turned(everything, f"false-{n}"))
    return {
        "lessons of the first runs": [everything] * len(first),
        "lessons of the other tasks only": others,
        "contradicting lessons, one for each true one": [(*everything, *turned(everything))] * len(first),
        "false lessons only, fivefold": [poison] * len(first),
    }


# -- the figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One experiment against the runs without a store."""

    name: str
    evaluations: float
    """Until the first runs' best was reached, on average; all of a run's where it was not."""
    fewer: int
    """Tasks that needed fewer than without a store."""
    more: int
    speed: float
    """Of the best kernels against those without a store, geometric mean."""
    worse: int
    """Tasks whose best kernel is slower than without a store."""


def compared(name: str, first: Sequence[Outcome], then: Sequence[Outcome]) -> Row:
    before = [a.until(a.best) or len(a.times) for a in first]
    after = [b.until(a.best) or len(b.times) for a, b in zip(first, then, strict=True)]
    ratios = [a.best / b.best for a, b in zip(first, then, strict=True)]
    return Row(
        name,
        sum(after) / len(after),
        sum(b < a for a, b in zip(before, after, strict=True)),
        sum(b > a for a, b in zip(before, after, strict=True)),
        math.exp(sum(map(math.log, ratios)) / len(ratios)),
        sum(ratio < 1 / SAME for ratio in ratios),
    )


def experiment(found: Sequence[World], budget: str) -> list[Row]:
    """All arms over all tasks."""
    with tempfile.TemporaryDirectory() as place:
        write_skills(Path(place) / "skills")
        catalogue = load([Path(place) / "skills"], built_in=False)
    first = [run(world, catalogue, (), budget, f"first-{world.task.name}") for world in found]
    rows = [compared("no store", first, first)]
    for name, stores in arms(first).items():
        then = [
            run(world, catalogue, lessons, budget, f"then-{world.task.name}")
            for world, lessons in zip(found, stores, strict=True)
        ]
        rows.append(compared(name, first, then))
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = ["| store | evaluations to the same best | fewer / more | best against no store | worse |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        counts = f"{row.fewer} / {row.more}"
        lines.append(f"| {row.name} | {row.evaluations:.1f} | {counts} | {row.speed:.3f}x | {row.worse} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", help="folders of benchmarks/judge/cases; all where left out")
    parser.add_argument("--budget", action="append", choices=TERMS, help="all where left out")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="of which skill does what")
    parser.add_argument("--json", action="store_true", help="rows for a program to read")
    arguments = parser.parse_args()
    found = worlds(tuple(arguments.tasks), arguments.draw)
    told = {budget: experiment(found, budget) for budget in arguments.budget or TERMS}
    if arguments.json:
        print(json.dumps({name: [asdict(row) for row in rows] for name, rows in told.items()}, indent=2))
        return
    print(f"{len(found)} tasks")
    for name, rows in told.items():
        terms = TERMS[name]
        steps = ", ".join(f"{terms.steps[stage]}" for stage in STAGES)
        print(
            f"\nBudget {name} (steps {steps}; a stage ends after {terms.patience} in vain):\n\n{table(rows)}"
        )


if __name__ == "__main__":
    main()
