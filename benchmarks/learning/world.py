"""Sixteen programs with the truth about every built-in skill, unknown beforehand.

The programs (``tasks/``) are ordinary ones at ordinary sizes, and what is known of them is read off
them as in any run. A run's first kernel is described and not written (``first_kernels.json``): a
plain one, with what a compiler and a GPU would say of it, so that the conditions of the real skills
have something to hold for in every stage. What following a skill brings is written down too, world by
world (``worlds.tsv``, made by ``draw.py``). The team takes what it is offered in the order it is offered,
and the judge multiplies what the skills in a file bring, down to the program's roofline floor.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from egg.core.evaluation import (
    Accepted,
    Baseline,
    Correctness,
    Evaluation,
    Gate,
    Interval,
    Machine,
    Measured,
    Provenance,
    Refusal,
    Rejected,
)
from egg.core.facts import Facts
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Prediction
from egg.core.policy import Precision
from egg.core.resources import Access, InstructionMix, KernelResources, KernelWork
from egg.core.roles import Brief, Failure
from egg.core.source import Candidate, Task
from egg.core.stage import Metric
from egg.evaluator.judge.pool import Job
from egg.knowledge.skill import Catalogue

HERE = Path(__file__).resolve().parent
WORLDS = (0, 1, 2, 3)
START = 12.0
"""How many times its roofline floor the first kernel of a program takes."""
NOISE = 0.01


# -- the truth -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A program, and what every skill does to it in one of the worlds."""

    task: Task
    facts: Facts
    first: Mapping[str, Any]
    """The figures of its first kernel."""
    number: int = 0

    def effect(self, stage: str, skill: str) -> float | None:
        """The factor on its speed, or ``None`` where it is refused; 1 where nothing is written down."""
        effects = _effects(self.number)
        of_family = effects.get((self.first["family"], stage, skill), "1")
        effect = effects.get((self.task.name, stage, skill), of_family)
        return None if effect == "refused" else float(effect)

    @property
    def floor(self) -> float:
        floor = self.facts.gpu.floor_milliseconds
        assert floor is not None
        return floor

    def milliseconds(self, source: str) -> float | None:
        """Of a file, from the list of skills in it; ``None`` where one of them is refused here."""
        time = START * self.floor
        for stage, skill in applied(source):
            effect = self.effect(stage, skill)
            if effect is None:
                return None
            time /= effect
        return max(time, self.floor)


@cache
def _effects(number: int) -> Mapping[tuple[str, str, str], str]:
    """By family or task, stage and skill."""
    with (HERE / "worlds.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {
            (row["of"], row["stage"], row["skill"]): row[f"world {number}"]
            for row in rows
            if row[f"world {number}"]
        }


def first_kernels() -> dict[str, Any]:
    return json.loads((HERE / "first_kernels.json").read_text(encoding="utf-8"))


def worlds(names: Sequence[str] = (), number: int = 0) -> list[World]:
    """The programs, all of them where none is named."""
    kernels = first_kernels()
    return [World(*_program(name), kernels[name], number) for name in names or sorted(kernels)]


@cache
def _program(name: str) -> tuple[Task, Facts]:
    from egg.evaluator.task.facts import task_facts
    from egg.hardware.gpus import resolve

    task = Task(name, (HERE / "tasks" / f"{name}.py").read_text(encoding="utf-8"))
    return task, task_facts(task, resolve("H200"), Precision.MATCH)


# -- the judge -------------------------------------------------------------------------------------


class WorldJudge:
    """Answers from the hidden truth, with the resources of the described kernel beside it."""

    GPU = "NVIDIA H200"

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernels = _resources(world)

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        for job in jobs:
            yield job.id, self._evaluation(job)

    def close(self) -> None:
        pass

    def _evaluation(self, job: Job) -> Evaluation:
        asked = job.question
        time = self._world.milliseconds(asked.candidate.source)
        wrong = Refusal(Gate.CORRECTNESS, "correctness.error", "wrong values", "look at the mask")
        return Evaluation(
            task=asked.task.name,
            task_hash=asked.task.hash,
            candidate=asked.candidate.name,
            candidate_hash=asked.candidate.hash,
            policy=asked.policy,
            machine=Machine("cuda", self.GPU, "3.12", "2.11", "3.6"),
            verdict=Rejected(wrong) if time is None else self._accepted(time),
            gates=(),
            seconds=1.0,
        )

    def _accepted(self, time: float) -> Accepted:
        eager = START * self._world.floor
        measured = Measured(
            gpu=self.GPU,
            milliseconds=_narrow(time),
            baselines=(Baseline("eager", _narrow(eager), _narrow(eager / time)),),
            noise_floor=NOISE,
            wall_milliseconds=time,
            wall_speedup=eager / time,
            floor_milliseconds=self._world.floor,
            faster=eager / time > 1 + NOISE,
            kernels=self._kernels,
        )
        launched = {kernel.name: kernel.launches for kernel in self._kernels}
        return Accepted(Correctness(4, 0.1, 0.1, 1e-7, 1e-7, True), Provenance(launched, {}, 1.0), measured)


def _narrow(value: float) -> Interval:
    return Interval(value, value * 0.999, value * 1.001)


def _resources(world: World) -> tuple[KernelResources, ...]:
    """What a compiler would say of the described kernel; its work is the program's own."""
    program, first = world.facts.program, world.first
    assert program is not None
    read, written = 0.7 * program.least_bytes, 0.3 * program.least_bytes
    asked = read * first["reread"]
    accesses = (
        Access("x_ptr", False, asked, asked / first["efficiency"], read),
        Access("y_ptr", True, written, written, written, atomic=bool(first.get("atomics"))),
    )
    precision = first.get("dot", "")
    on_cores = {"fp16" if precision == "fp16" else "tf32": program.flops} if precision else {}
    other = sum(program.flops_by_family.values()) - (program.flops if precision else 0.0)
    waits = first["iterations"]
    work = KernelWork(on_cores, 0.0, other, 0.05 * other, accesses, waits, waits=waits)
    mix = InstructionMix(
        total=400,
        tensor_core=32 if precision else 0,
        arithmetic=120,
        special=8,
        global_loads=16,
        global_stores=4,
        shared_loads=24 if precision else 4,
        shared_stores=8 if precision else 4,
        local=first.get("spills", 0) // 4,
        async_copies=0,
        atomics=first.get("atomics", 0),
        barriers=4,
        shuffles=10,
        narrowest_load_bits=first["load_bits"],
        widest_store_bits=64,
        looped=300,
    )
    main = KernelResources(
        name="work",
        grid=(first["grid"], 1, 1),
        registers=first["registers"],
        spill_bytes=first.get("spills", 0),
        shared_bytes=first.get("shared", 1024),
        num_warps=first["warps"],
        num_stages=first["stages"],
        tensor_core_instructions=32 if precision else 0,
        widest_load_bits=first["load_bits"],
        launches=first.get("launches", 1),
        instructions=mix,
        work=work,
    )
    if not first.get("second"):
        return (main,)
    return main, KernelResources("finish", (512, 1, 1), 32, 0, 0, 4, 1, 0, 128)


# -- the team --------------------------------------------------------------------------------------

_SOURCE = '''import torch
import triton
import triton.language as tl
from torch import nn

APPLIED = ({applied})
TRY = {attempt}


@triton.jit
def work(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Does the work, block by block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + at, mask=start + at < n, other=0.0)
        {step}
    {store}
{second}

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 128)
{launch}        return y
'''
_SECOND = '''

@triton.jit
def finish(y_ptr, n, BLOCK: tl.constexpr):
    """What comes after."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(y_ptr + at, mask=at < n) * 2.0, mask=at < n)

'''


def applied(source: str) -> tuple[tuple[str, str], ...]:
    """The skills that a file says were followed for it, each with the stage."""
    applied = re.search(r"^APPLIED = \((.*)\)$", source, re.MULTILINE)
    return tuple(re.findall(r'"([a-z]+) ([^" ]+)"', applied[1])) if applied else ()


class Follower:
    """Every role at once: it follows the first skill it is offered that it has not followed in this stage."""

    def __init__(self, world: World, catalogue: Catalogue) -> None:
        self._world, self._catalogue = world, catalogue

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
                allowed = brief.assignment.categories
                category = next(c for c in self._catalogue[skill.name].categories if c in allowed)
                prediction = Prediction(1.2, Metric.TIME, "less of it")
                return Plan(category, "it is slow", f"do as {skill.name} says", prediction, skill.name)
        return Pass("everything that was offered was followed")

    tune = design

    def seed(self, brief: Brief) -> Draft:
        return self._file(())

    def optimize(self, brief: Brief, plan: Plan) -> Draft:
        done = applied(brief.base.candidate.source) if brief.base is not None else ()
        assert plan.skill is not None
        return self._file((*done, (brief.assignment.stage.value, plan.skill)))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft:
        return self._file(applied(failure.candidate.source), len(brief.trajectory.chain))

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis:
        return Diagnosis("the values are wrong", "try once more")

    def _file(self, skills: Sequence[tuple[str, str]], attempt: int = 0) -> Draft:
        first = self._world.first
        precision = first.get("dot", "")
        how = f', input_precision="{precision}"' if precision.startswith("tf32") else ""
        dot = f"total += tl.sum(tl.dot(x[:, None], x[None, :]{how}), 1)"
        second = bool(first.get("second"))
        store = "tl.atomic_add(y_ptr, tl.sum(total))" if first.get("atomics") else ""
        return Draft(
            _SOURCE.format(
                applied="".join(f'"{stage} {skill}", ' for stage, skill in skills),
                attempt=attempt,
                step=dot if precision else "total += x",
                store=store or "tl.store(y_ptr + at, total, mask=at < n)",
                second=_SECOND if second else "",
                launch="        finish[(512,)](y, y.numel(), 128)\n" if second else "",
            )
        )


def candidate(world: World, catalogue: Catalogue) -> Candidate:
    """The described first kernel as a file."""
    return Candidate(Follower(world, catalogue)._file(()).source, world.task.name)
