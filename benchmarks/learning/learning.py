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

from world import WORLDS, Follower, World, WorldJudge, worlds

from egg.agents.prompting import SKILL_SHARE
from egg.api.lessons import recall, remember
from egg.api.runs import advance, start, state_of
from egg.core.events import Evaluated
from egg.core.settings import Settings
from egg.core.stage import Stage
from egg.engine.budgets import BUDGETS
from egg.engine.log import read_log
from egg.knowledge.advisor import KnowledgeAdvisor
from egg.knowledge.catalogue import load
from egg.knowledge.skill import Catalogue
from egg.memory.lessons import Lesson, Verdict
from egg.memory.standing import from_record
from egg.memory.store import LessonStore

STAGES = (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY)
TERMS = {
    "quick": replace(BUDGETS["quick"], repairs=1, side_by_side=False),
    "standard": replace(BUDGETS["standard"], repairs=1, side_by_side=False),
    "deep": replace(BUDGETS["deep"], repairs=1, side_by_side=False),
}
"""As users have them; only a refused file, which cannot be repaired here, is not repaired so often, and every
file is judged, since the kept verdicts are on files one by one."""
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
    """One program under one store of lessons: a whole run, from what it recalls to what it remembers."""
    with tempfile.TemporaryDirectory() as place:
        folder, store = Path(place) / "run", Path(place) / "lessons.sqlite"
        known = tuple(lessons)
        if known:
            with LessonStore(store) as kept:
                kept.add(known)
        settings = Settings("scripted", TERMS[budget], device="cuda:0", target="H200", skills=())
        recalled = recall(store, world.facts)
        start(folder, world.task, settings, world.facts, name=name, lessons=recalled)
        advisor = KnowledgeAdvisor(  # as a run's own, but the catalogue is read once for all of them
            catalogue,
            int(settings.budget.prompt_tokens * SKILL_SHARE),
            from_record(state_of(folder).started.standings),
        )
        team = Follower(world, catalogue)
        state = advance(folder, lambda started, journal: team, WorldJudge(world), advisor=advisor).state
        quick = [
            entry.event
            for entry in read_log(folder)
            if isinstance(entry.event, Evaluated) and entry.event.job.endswith(".quick")
        ]
        best = state.best_kernel
        assert best is not None
        remember(folder, Path(place) / "learned.sqlite")
        with LessonStore(Path(place) / "learned.sqlite") as kept:
            learned = kept.lessons()
        return Outcome(
            world.task.name, best.score.milliseconds.median, tuple(_time(event) for event in quick), learned
        )


def _time(event: Evaluated) -> float | None:
    verdict = event.evaluation.to_json()["verdict"]
    return verdict["performance"]["milliseconds"]["median"] if verdict["kind"] == "accepted" else None


# -- the stores ------------------------------------------------------------------------------------


def turned(lessons: Iterable[Lesson], name: str = "false") -> tuple[Lesson, ...]:
    """The same lessons with the opposite outcome: what worked failed, what failed worked splendidly."""
    return tuple(_turned(lesson, name) for lesson in lessons if lesson.skill is not None)


def _turned(lesson: Lesson, name: str) -> Lesson:
    neutral = replace(lesson, failure="", verdict=Verdict.NO_GAIN, run=f"{name}-{lesson.run}")
    if lesson.worked:
        return replace(neutral, verdict=Verdict.SLOWER, gain=0.5, after=2.0)
    return replace(neutral, verdict=Verdict.PROMOTED, gain=2.0, after=0.5)


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


def experiment(found: Sequence[World], budget: str, only: Sequence[str] = ()) -> list[Row]:
    """All arms, or those whose names begin with one of ``only``, over all programs of one world."""
    catalogue = load()
    first = [run(world, catalogue, (), budget, f"first-{world.task.name}") for world in found]
    rows = [compared("no store", first, first)]
    for name, stores in arms(first).items():
        if only and not name.startswith(tuple(only)):
            continue
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
    parser.add_argument("tasks", nargs="*", help="of tasks/, without .py; all where left out")
    parser.add_argument("--budget", action="append", choices=TERMS, help="standard where left out")
    parser.add_argument("--world", action="append", type=int, choices=WORLDS, help="all where left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows for a program to read")
    arguments = parser.parse_args()
    found: dict[str, dict[str, list[Row]]] = {}
    for budget in arguments.budget or ["standard"]:
        terms = TERMS[budget]
        steps = ", ".join(f"{terms.steps[stage]}" for stage in STAGES)
        print(f"\nBudget {budget} (steps {steps}; a stage ends after {terms.patience} in vain)")
        for number in arguments.world or WORLDS:
            rows = experiment(worlds(arguments.tasks, number), budget)
            found.setdefault(budget, {})[f"world {number}"] = rows
            print(f"\nWorld {number}:\n\n{table(rows)}", flush=True)
    if arguments.json is not None:
        plain = {b: {w: [asdict(row) for row in rows] for w, rows in of.items()} for b, of in found.items()}
        arguments.json.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
