"""Rows made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from egg.bench.families import WorkFamily
from egg.bench.rows import Basis, NoKernel, Opponent, Passed, Refused, Row, Spent, Timing, Unable, row_of
from egg.core.evaluation import Gate, Interval
from egg.core.facts import Family
from egg.core.policy import Policy, Precision
from egg.core.source import Candidate, Task

GPU = "NVIDIA H200"
TF32 = Policy(Precision.TF32)
KERNEL = "class ModelNew:\n    number = {}\n"


def task(problem: int, level: int | None = 1, body: str = "x") -> Task:
    """Level 1, problem 3 is ``3_op``; without a level it goes by its name."""
    source = (
        f"class Model:\n    def forward(self, x):\n        return {body} * {problem}\n"
        "def get_inputs(): ...\ndef get_init_inputs(): ...\n"
    )
    return Task(f"{problem}_op", source, level, problem if level is not None else None)


def kernel(problem: int) -> Candidate:
    return Candidate(KERNEL.format(problem))


def around(value: float, spread: float = 0.0) -> Interval:
    return Interval(value, value * (1 - spread), value * (1 + spread))


def passed(
    of: Task,
    speedups: Mapping[str, float] | None,
    *,
    default: Mapping[str, float] | None = None,
    policy: Policy | None = None,
    noise: float = 0.01,
    spread: float = 0.005,
    rounds: Sequence[float] = (),
    gpu: str = GPU,
    kernelbench: bool = True,
    degenerate: bool | None = False,
    family: WorkFamily = Family.POINTWISE,
    spent: Spent | None = None,
) -> Row:
    """Accepted at one millisecond; ``rounds`` are relative, the same for every contestant."""
    opponents = [(name, Basis.MATCHED, value) for name, value in (speedups or {}).items()]
    opponents += [(name, Basis.DEFAULT, value) for name, value in (default or {}).items()]
    timing = Timing(
        gpu,
        around(1.0, spread),
        tuple(
            Opponent(
                name, basis, around(value, spread), around(value, spread), tuple(r * value for r in rounds)
            )
            for name, basis, value in opponents
        ),
        noise,
        (1.0,) * len(rounds),
    )
    verdict = Passed(
        kernel(of.problem_id or 0).hash, 1.0, {}, 1, 1e-7, 2e-7, kernelbench, timing if speedups else None
    )
    row = failed(of, policy=policy, family=family, spent=spent)
    versions = {**row.versions, "torch": "2.11", "gpu": gpu}
    return replace(row, verdict=verdict, degenerate=degenerate, versions=versions)


def failed(
    of: Task,
    verdict: Refused | NoKernel | Unable | None = None,
    *,
    policy: Policy | None = None,
    family: WorkFamily = Family.POINTWISE,
    spent: Spent | None = None,
) -> Row:
    row = row_of(of, NoKernel("nothing"), policy or Policy(), family=family, spent=spent)
    return replace(row, verdict=verdict or refused(of))


def refused(of: Task, gate: Gate = Gate.CORRECTNESS) -> Refused:
    return Refused(kernel(of.problem_id or 0).hash, gate, f"{gate.value}.error", "it was seen")
