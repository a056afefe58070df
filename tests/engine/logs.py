"""A run's events, made by hand: one small staged trajectory with a bit of everything in it.

Seed (first file refused, repaired), structure (a promoted fusion, a plan sent back, a step that
fails), the contract, mapping skipped, tiling by a sweep, memory passed, the end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from egg.core.conversation import Completion, Finish, Message, Request, Speaker, Usage
from egg.core.evaluation import Accepted, Evaluation, Gate, Measured, Refusal, Rejected
from egg.core.events import (
    SCHEMA,
    Answered,
    ContractMade,
    Evaluated,
    Event,
    Exchanged,
    Objected,
    Proposed,
    RunClosed,
    RunStarted,
    SentBack,
    StageClosed,
    StageOpened,
    StageSkipped,
    StepClosed,
    Swept,
)
from egg.core.facts import Facts, GpuFacts, ProgramFacts
from egg.core.plan import Answer, Diagnosis, Draft, Pass, Plan, Prediction
from egg.core.policy import Level, Policy
from egg.core.settings import Budget, Caps, ModelChoice, Settings
from egg.core.source import Candidate, Task, content_hash
from egg.core.space import Sweep, SweepPoint
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Attempt, Contract, Decision, Gain, Handoff, KernelRole, Origin, Score, Step
from egg.engine.log import LogWriter
from egg.engine.redaction import Redactor
from tests import samples

EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = Task.from_file(EXAMPLES / "row_softmax" / "row_softmax.py")
FUSED = (EXAMPLES / "row_softmax" / "fused.py").read_text()

SEED = f"# A first version.\n{FUSED}"
BROKEN = SEED.replace("ModelNew", "ModelOld")
TUNED = {warps: f"# {warps} warps\nNUM_WARPS = {warps}\n{FUSED}" for warps in (2, 4, 8)}
"""The points of the sweep; four is what the file declares."""

BUDGET = Budget(
    "quick",
    {Stage.SEED: 2, Stage.STRUCTURE: 3, Stage.MAPPING: 1, Stage.TILING: 2, Stage.MEMORY: 1},
    patience=2,
    repairs=2,
    sweep_points=16,
    headroom=1.1,
    prompt_tokens=16_000,
    reply_tokens=8_000,
)
SETTINGS = Settings(
    "llm",
    BUDGET,
    target="H200",
    caps=Caps(cost=2.5, minutes=30),
    model=ModelChoice("openai", "some-model", "http://127.0.0.1:8080/v1", "SOME_API_KEY", 0.2),
)
FACTS = Facts(
    GpuFacts("NVIDIA H200", "sm_90", 132, 232_448, 65_536, 62_914_560, 4.8e12, 6.7e13, 0.028),
    ProgramFacts(
        0.0,
        134_217_728,
        ("x float32[4096, 4096]", "out float32[4096, 4096]"),
        ("aten._softmax [4096, 4096]",),
    ),
)
FUSION = Plan(
    Category.OPERATOR_FUSION,
    "the row is read three times",
    "one program per row: load once, reduce in registers, store once",
    Prediction(1.8, Metric.DRAM_TRAFFIC, "3 passes -> 1"),
    "fuse-row-reduction",
)
SPLIT = Plan(
    Category.KERNEL_SPLIT,
    "few programs for 132 SMs",
    "two programs per row, combined by a second kernel",
    Prediction(1.05, Metric.OCCUPANCY, "1 wave -> 2 waves"),
)
WARPS = Plan(
    Category.WARP_COUNT,
    "one warp does too much of a row",
    "leave the number of warps open: 2, 4, 8",
    Prediction(1.1, Metric.TIME, "shorter reductions"),
)
DIAGNOSIS = Diagnosis("the class is called ModelOld", "rename it to ModelNew")
CONTRACT = Contract((KernelRole("softmax_rows", 1, ("reduce", "reduce"), "Softmax of one row."),), {})


def sample_events() -> tuple[Event, ...]:
    """The whole trajectory, valid as a log: it begins with the run's start and ends with its end."""
    seed, broken, fused = content_hash(SEED), content_hash(BROKEN), content_hash(FUSED)
    points = {warps: content_hash(source) for warps, source in TUNED.items()}
    refusal = Refusal(Gate.STATIC, "static.no_model", "there is no class ModelNew", "define it")
    sweep = Sweep(
        3,
        (
            SweepPoint({"NUM_WARPS": 4}, points[4], 0.0402, "measured"),
            SweepPoint({"NUM_WARPS": 2}, points[2], None, "correctness.error"),
            SweepPoint({"NUM_WARPS": 8}, points[8], 0.0371, "measured"),
        ),
        points[8],
    )
    written = Step(
        1,
        Stage.SEED,
        None,
        None,
        (Attempt(broken, Origin.SEED, refusal=refusal), Attempt(seed, Origin.REPAIR, DIAGNOSIS)),
        Decision.PROMOTED,
        "the first accepted kernel",
        seed,
    )
    fusion = Step(
        2,
        Stage.STRUCTURE,
        seed,
        FUSION,
        (Attempt(fused, Origin.OPTIMIZE),),
        Decision.PROMOTED,
        "1.80x over the base, beyond the noise of 0.6%",
        fused,
        Gain(1.8, True, True),
    )
    split = Step(
        3,
        Stage.STRUCTURE,
        fused,
        SPLIT,
        (Attempt(broken, Origin.OPTIMIZE, objection="it repeats the file of step 1"),),
        Decision.REPEATED,
        "nothing new was written",
    )
    tiling = Step(
        4,
        Stage.TILING,
        fused,
        WARPS,
        (Attempt(points[4], Origin.OPTIMIZE),),
        Decision.PROMOTED,
        "1.08x over the base",
        points[8],
        Gain(1.08, True, True),
        sweep,
    )
    return (
        RunStarted(SCHEMA, "row_softmax-1", "0.1.0", TASK, SETTINGS, FACTS),
        StageOpened(Stage.SEED, None),
        *asked("coder.seed", 1, Draft(BROKEN)),
        Proposed(1, Origin.SEED, broken, BROKEN),
        Evaluated("1-seed-a", evaluation(BROKEN, refusal=refusal)),
        *asked("debugger", 1, DIAGNOSIS),
        *asked("coder.repair", 1, Draft(SEED)),
        Proposed(1, Origin.REPAIR, seed, SEED),
        Evaluated("1-repair-b", evaluation(SEED, 1.0)),
        StepClosed(written),
        StageClosed(_handoff(Stage.SEED, (written,), seed, 1.0)),
        StageOpened(Stage.STRUCTURE, seed),
        *asked("designer", 2, FUSION),
        *asked("coder.optimize", 2, Draft(FUSED)),
        Proposed(2, Origin.OPTIMIZE, fused, FUSED),
        Evaluated("2-optimize-a", evaluation(FUSED, 1.8)),
        StepClosed(fusion),
        *asked("designer", 3, FUSION),
        SentBack("designer", 3, "this plan was followed in step 2"),
        *asked("designer", 3, SPLIT),
        *asked("coder.optimize", 3, Draft(BROKEN)),
        Proposed(3, Origin.OPTIMIZE, broken, BROKEN),
        Objected(3, broken, "it repeats the file of step 1"),
        StepClosed(split),
        StageClosed(_handoff(Stage.STRUCTURE, (fusion, split), fused, 1.8)),
        ContractMade(CONTRACT),
        StageSkipped(Stage.MAPPING, "within 1.1x of the floor"),
        StageOpened(Stage.TILING, fused),
        *asked("tuner", 4, WARPS),
        *asked("coder.optimize", 4, Draft(TUNED[4])),
        Proposed(4, Origin.OPTIMIZE, points[4], TUNED[4]),
        Evaluated("4-optimize-a", evaluation(TUNED[4], 1.8)),
        Proposed(4, Origin.SWEEP, points[2], TUNED[2]),
        Proposed(4, Origin.SWEEP, points[8], TUNED[8]),
        Evaluated("4-sweep-b", evaluation(TUNED[8], 1.95)),
        Evaluated("4-sweep-a", evaluation(TUNED[2], refusal=replace(refusal, gate=Gate.CORRECTNESS))),
        Swept(4, sweep),
        StepClosed(tiling),
        StageClosed(_handoff(Stage.TILING, (tiling,), points[8], 1.95)),
        StageOpened(Stage.MEMORY, points[8]),
        *asked("tuner", 5, Pass("every byte is moved once")),
        StepClosed(Step(5, Stage.MEMORY, points[8], None, (), Decision.PASSED, "every byte is moved once")),
        StageClosed(_handoff(Stage.MEMORY, (), points[8], 1.95)),
        RunClosed(points[8], "faster", "1.95x over eager, noise 0.6%", "every stage was done"),
    )


def asked(role: str, step: int, answer: Answer, *, model: str = "some-model") -> tuple[Event, Event]:
    """One model call and the answer it led to."""
    text = answer.source if isinstance(answer, Draft) else f"{answer}"
    request = Request(
        role,
        (
            Message(Speaker.SYSTEM, "You write Triton kernels. Übung macht den Meister: 2 × 2 → 4."),
            Message(Speaker.USER, f"Make this fast:\n```python\n{TASK.source}\n```\n"),
        ),
        8_000,
        {"type": "object", "properties": {"kind": {"enum": ["plan", "pass"]}}}
        if role == "designer"
        else None,
    )
    completion = Completion(text, Finish.STOP, Usage(1200, 350, 1000), model, 0.0125, 3.25)
    return Exchanged(request, completion), Answered(role, step, answer, 3.5)


def evaluation(source: str, speedup: float = 1.0, *, refusal: Refusal | None = None) -> Evaluation:
    """What the judge said of a file: measured at ``speedup`` over eager, or refused."""
    made = samples.measured(speedup, faster=speedup > 1.01)
    return replace(
        made,
        task=TASK.name,
        task_hash=TASK.hash,
        candidate="candidate",
        candidate_hash=Candidate(source).hash,
        policy=Policy(level=Level.QUICK),
        verdict=Rejected(refusal) if refusal else made.verdict,
    )


def write_log(
    folder: Path, events: tuple[Event, ...] | None = None, redactor: Redactor | None = None
) -> Path:
    """Write events as a run; returns the log's path."""
    with LogWriter(folder, redactor) as log:
        for event in sample_events() if events is None else events:
            log.append(event)
    return folder / "events.jsonl"


def _handoff(stage: Stage, tried: tuple[Step, ...], best: str, speedup: float) -> Handoff:
    verdict = evaluation(FUSED, speedup).verdict
    assert isinstance(verdict, Accepted)
    found = verdict.performance
    assert isinstance(found, Measured)
    eager = next(b.speedup for b in found.baselines if b.name == "eager")
    score = Score(True, found.milliseconds, eager, found.noise_floor, found.floor_milliseconds, found.faster)
    contract = None if stage is Stage.SEED else CONTRACT
    return Handoff(stage, "nothing more to gain", contract, best, score, tried, "DRAM bandwidth")
