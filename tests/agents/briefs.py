"""Briefs of every kind, made by hand: with and without a base, measured and compiled, early and late."""

from __future__ import annotations

from dataclasses import replace

from egg.agents.prompting import prompt_file
from egg.core.evaluation import Evaluation, Gate, Interval, Refusal
from egg.core.facts import Facts, GpuFacts, ProgramFacts
from egg.core.plan import Diagnosis, Plan, Prediction
from egg.core.policy import LibraryCalls, Policy, Precision
from egg.core.roles import Assignment, Brief, Failure, Skill
from egg.core.source import Candidate, Task
from egg.core.stage import Category, Metric, Stage
from egg.core.step import (
    Attempt,
    Contract,
    Decision,
    Gain,
    Handoff,
    Kernel,
    KernelRole,
    Origin,
    Score,
    Step,
    Trajectory,
)
from tests.samples import compiled, measured

TASK = Task("affine_softmax", prompt_file("example_task.py"))
KERNEL = prompt_file("example_kernel.py").replace("affine_softmax", "softmax_rows")
FACTS = Facts(
    GpuFacts(
        "NVIDIA H200",
        "sm_90",
        132,
        232448,
        65536,
        50 * 2**20,
        4.8e12,
        494.7e12 * 2 / 3,
        floor_milliseconds=0.014,
    ),
    ProgramFacts(
        0.0,
        67_117_056,
        ("x float32[8192, 1024]", "scale float32[1024]", "output float32[8192, 1024]"),
        ("aten.mul [8192, 1024]", "aten.add [8192, 1024]", "aten._softmax [8192, 1024]"),
    ),
)
CATEGORIES = {
    Stage.SEED: (),
    Stage.STRUCTURE: (Category.OPERATOR_FUSION, Category.ALGORITHM_REPLACEMENT, Category.KERNEL_SPLIT),
    Stage.MAPPING: (Category.PROGRAM_ORDER, Category.WORK_PER_PROGRAM, Category.PERSISTENCE),
    Stage.TILING: (Category.TILE_SHAPE, Category.PIPELINE_DEPTH),
    Stage.MEMORY: (Category.ACCESS_WIDTH, Category.CACHE_POLICY),
}
METRICS = (Metric.TIME, Metric.LAUNCHES, Metric.DRAM_TRAFFIC)
CONTRACT = Contract((KernelRole("softmax_rows", 1, ("reduce",), "Whole rows per program."),), {"aten.mm": 1})
SKILLS = (
    Skill(
        "wide-loads", "Load 16 bytes per thread.", "Use BLOCK a multiple of 512.", "widest_load_bits is 32"
    ),
    Skill("more-rows", "Several rows per program.", "Loop over ROWS rows.", "grid is 62 waves"),
)
PLAN = Plan(
    Category.WORK_PER_PROGRAM,
    "62 waves of tiny programs",
    "four rows per program",
    Prediction(1.2, Metric.TIME, "0.040 ms -> 0.033 ms"),
    "more-rows",
)
REFUSAL = Refusal(
    Gate.CORRECTNESS, "correctness.error", "max error 3.1e-2 is 412 times what is allowed", "check the mask"
)
FAILED_ATTEMPT = Attempt("feedfacefeedface", Origin.OPTIMIZE, refusal=REFUSAL)
REPAIRED = Attempt(
    "deadbeefdeadbeef",
    Origin.REPAIR,
    Diagnosis("Rows past the end are summed.", "Mask the row index at the load."),
    objection="it repeats an earlier file",
)
FAILURE = Failure(Candidate(KERNEL.replace('float("-inf")', "0.0")), REFUSAL, "", (FAILED_ATTEMPT, REPAIRED))
DIAGNOSIS = Diagnosis("Padded columns count as zero in the maximum.", "Use -inf in tl.where of softmax_rows.")


def assignment(stage: Stage) -> Assignment:
    return Assignment(
        stage,
        f"the objective of {stage.value}",
        f"what {stage.value} may change",
        f"what {stage.value} must keep",
        METRICS,
        CATEGORIES[stage],
    )


def score(*, is_measured: bool) -> Score:
    time = Interval(0.0402, 0.0399, 0.0405)
    return Score(
        is_measured,
        time,
        Interval(1.8, 1.78, 1.82) if is_measured else None,
        0.006,
        0.028,
        is_measured or None,
    )


def kernel(evaluation: Evaluation | None = None, source: str = KERNEL) -> Kernel:
    evaluation = evaluation or measured()
    return Kernel(Candidate(source), evaluation, score(is_measured=evaluation.machine.device == "cuda"))


def step(number: int, stage: Stage, decision: Decision = Decision.NOT_BETTER) -> Step:
    plan = replace(PLAN, change=f"change number {number}")
    return Step(
        number,
        stage,
        "0123456789abcdef",
        plan,
        (Attempt(f"{number:016x}", Origin.OPTIMIZE, refusal=REFUSAL if number % 3 == 0 else None),),
        decision,
        f"reason number {number}",
        gain=Gain(1.01, False, True),
    )


def handoff(stage: Stage, steps: int = 2) -> Handoff:
    tried = tuple(step(i, stage) for i in range(1, steps + 1))
    return Handoff(
        stage,
        "no gain in 3 tries",
        CONTRACT,
        "0123456789abcdef",
        score(is_measured=True),
        tried,
        "DRAM traffic",
    )


def brief(
    stage: Stage = Stage.STRUCTURE,
    *,
    steps: int = 2,
    precision: Precision = Precision.MATCH,
    library_calls: LibraryCalls = LibraryCalls.ALLOW,
    base: Kernel | None = None,
    skills: tuple[Skill, ...] = SKILLS,
    objection: str = "",
) -> Brief:
    return Brief(
        TASK,
        Policy(precision, library_calls),
        FACTS,
        assignment(stage),
        Trajectory(stage, tuple(step(10 + i, stage) for i in range(steps))),
        base if base is not None or stage is Stage.SEED else kernel(),
        base if base is not None or stage is Stage.SEED else kernel(),
        (handoff(Stage.STRUCTURE, max(2, steps)),) if stage.tunes else (),
        skills,
        objection,
    )


COMPILED_BASE = kernel(compiled())
