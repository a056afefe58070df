"""A small world in which some skills work and others do not, and nobody knows which beforehand.

The tasks are those of ``benchmarks/judge/cases`` with their real facts; the skills are made up, eight
for each stage, with promises that say nothing about what they do. What a skill does is drawn once
for each family of operators, by a hash and not by choice, so that tasks of one family teach each
other; for one task in six it is drawn again, so that they also mislead each other. The team takes what
it is offered in the order it is offered, and the judge multiplies what the skills in a file bring.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from egg.core.evaluation import Gate, Refusal
from egg.core.facts import Facts
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Prediction
from egg.core.policy import Precision
from egg.core.roles import Brief, Failure
from egg.core.source import Candidate, Task
from egg.core.stage import Category, Metric, Stage
from egg.engine.scripted import Act
from egg.engine.stages import SEARCH
from egg.knowledge.skill import Catalogue
from egg.memory.signature import signature_of

CASES = Path(__file__).resolve().parents[1] / "judge" / "cases"
SKILLS_PER_STAGE = 8
WORKS, IN_VAIN, SLOWER = 0.35, 0.65, 0.85
"""Of twenty skills seven work, six change nothing, four make it slower, three are refused."""
ODD_TASKS = 1 / 6
"""Of all pairs of task and skill, those for which the family's experience is wrong."""
STAGES = (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY)


@dataclass(frozen=True)
class Effect:
    """What a skill does to a task: a factor on its speed, or a refusal."""

    gain: float
    refused: bool = False


@dataclass(frozen=True)
class World:
    """A task with the truth about every skill."""

    task: Task
    facts: Facts
    draw: int = 0
    """Another number is another world."""

    @property
    def family(self) -> str:
        return next(iter(signature_of(self.facts).families), "unknown")

    def effect(self, skill: str) -> Effect:
        draw = str(self.draw) if self.draw else ""
        odd = _drawn(f"odd{draw}", self.task.name, skill) < ODD_TASKS
        told = (self.task.name if odd else self.family, skill + draw)
        kind, size = _drawn("kind", *told), _drawn("size", *told)
        if kind < WORKS:
            return Effect(1.05 + 0.5 * size**2)
        if kind < IN_VAIN:
            return Effect(1.0)
        return Effect(0.6 + 0.35 * size) if kind < SLOWER else Effect(1.0, refused=True)

    def act(self, candidate: Candidate) -> Act:
        """The judge's view of a file, from the list of skills in it."""
        effects = [self.effect(skill) for skill in applied(candidate.source)]
        if any(effect.refused for effect in effects):
            return Act(
                refusal=Refusal(Gate.CORRECTNESS, "correctness.error", "wrong values", "look at the mask"),
                kernels={"work": 1},
            )
        milliseconds = 1.0
        for effect in effects:
            milliseconds /= effect.gain
        return Act(milliseconds, kernels={"work": 1})


def worlds(names: tuple[str, ...], draw: int = 0) -> list[World]:
    """The tasks, all of them where none is named; their facts are read off one forward on fake tensors."""
    found = sorted(path.parent.name for path in CASES.glob("*/task.py"))
    made = []
    for name in names or found:
        task = Task(name, (CASES / name / "task.py").read_text(encoding="utf-8"))
        made.append(World(task, _facts(task), draw))
    return made


def _facts(task: Task) -> Facts:
    from egg.evaluator.task.facts import task_facts
    from egg.hardware.gpus import resolve

    return task_facts(task, resolve("H200"), Precision.MATCH)


def _drawn(*words: str) -> float:
    """Between 0 and 1, the same for the same words, everywhere."""
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:6]) / 2**48


# -- the skills ------------------------------------------------------------------------------------


def write_skills(folder: Path) -> None:
    """The made-up catalogue as files, which are read like anybody's."""
    for row in SEARCH:
        if row.stage in STAGES:
            for number in range(SKILLS_PER_STAGE):
                _write_skill(folder, row.stage, row.assignment.categories, number)


def _write_skill(folder: Path, stage: Stage, categories: tuple[Category, ...], number: int) -> None:
    name = f"{stage.value}-way-{number + 1}"
    promised = 1.15 + 0.6 * _drawn("promise", name)
    lines = [
        "---",
        f"name: {name}",
        f"description: Way {number + 1} of changing the {stage.value}, promising some {promised:.2f}x.",
        "metadata:",
        f"  stage: {stage.value}",
        f"  categories: {categories[number % len(categories)].value}",
        "  families: any",
        "  hardware: any",
        "  gate: program_known",
        f"  gain: {promised:.2f}-{promised * 1.1:.2f}",
        "---",
        "## When\nAlways.\n## How\nWrite its name down.\n## Expected\nNobody knows.\n## Risks\nSome.",
    ]
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


# -- the team --------------------------------------------------------------------------------------

_SOURCE = '''import torch
import triton
import triton.language as tl
from torch import nn

APPLIED = ({applied})
TRY = {attempt}


@triton.jit
def work(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Works on a block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 128)
        return y
'''


def applied(source: str) -> tuple[str, ...]:
    """The skills that a file says were applied to it."""
    told = re.search(r"^APPLIED = \((.*)\)$", source, re.MULTILINE)
    return tuple(re.findall(r'"([^"]+)"', told[1])) if told else ()


def _file(skills: tuple[str, ...], attempt: int = 0) -> Draft:
    return Draft(_SOURCE.format(applied="".join(f'"{skill}", ' for skill in skills), attempt=attempt))


class Follower:
    """Every role at once: it follows the first skill it is offered that it has not followed in this stage."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    @property
    def designer(self) -> Follower:
        return self

    @property
    def tuner(self) -> Follower:
        return self

    @property
    def coder(self) -> Follower:
        return self

    @property
    def debugger(self) -> Follower:
        return self

    def design(self, brief: Brief) -> Plan | Pass:
        followed = {step.plan.skill for step in brief.trajectory.steps if step.plan is not None}
        for skill in brief.skills:
            if skill.name not in followed:
                category = self._catalogue[skill.name].categories[0]
                prediction = Prediction(1.2, Metric.TIME, "less of it")
                return Plan(category, "it is slow", f"do as {skill.name} says", prediction, skill.name)
        return Pass("every skill was followed")

    tune = design

    def seed(self, brief: Brief) -> Draft:
        return _file(())

    def optimize(self, brief: Brief, plan: Plan) -> Draft:
        done = applied(brief.base.candidate.source) if brief.base is not None else ()
        return _file((*done, plan.skill or "nothing"))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft:
        return _file(applied(failure.candidate.source), len(brief.trajectory.chain))

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis:
        return Diagnosis("the values are wrong", "try once more")
