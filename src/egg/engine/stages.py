"""The stages as a table: what each is for, what it may touch, when it is entered and when it is left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from egg.core.parts import CONTRACT, STAGING
from egg.core.roles import Assignment
from egg.core.settings import Budget, Settings
from egg.core.stage import CATEGORIES, Metric, Stage
from egg.core.step import Decision
from egg.engine.state import RunState
from egg.engine.translation import awaits_translation

LEFT_OUT = "left out by --without"


@dataclass(frozen=True)
class StageRow:
    """One stage. ``planner`` is the role that chooses the change; a seed needs none."""

    assignment: Assignment
    planner: str | None
    sweeps: bool
    """Whether the tunables of an accepted file are swept."""

    @property
    def stage(self) -> Stage:
        return self.assignment.stage

    def barred(self, state: RunState) -> str:
        """Why the stage is not worth entering; empty when it is."""
        if self.stage is Stage.SEED:
            return ""
        without = state.started.settings.without
        if self.stage.value in without:
            return LEFT_OUT
        if state.base_kernel is None:
            return "there is no accepted kernel to build on"
        if near := near_floor(state):
            return near
        agreed = state.contract is not None or CONTRACT in without
        return "no structure was agreed on" if self.stage.tunes and not agreed else ""

    def done(self, state: RunState) -> str:
        """Why the stage is over; empty while it is not."""
        steps = state.steps_in(self.stage)
        if self.stage is Stage.SEED and awaits_translation(state):
            return ""
        if self.stage is Stage.SEED and state.base is not None:
            return f"{'a first' if state.started.start is None else 'the given'} kernel was accepted"
        if self.stage is Stage.SEED and steps and state.started.start is not None:
            return "the given kernel was refused"
        if steps and steps[-1].decision is Decision.PASSED:
            return f"nothing worth optimizing: {steps[-1].reason}"
        if self.stage is not Stage.SEED and (near := near_floor(state)):
            return near
        return _used_up(self.stage, state)


def refused_start(state: RunState) -> str:
    """Why the kernel file that the run was given is no base to build on; empty where it is one, or none was
    given. The team is not asked to repair it: the file is the user's own."""
    seeds = state.steps_in(Stage.SEED)
    if state.started.start is None or not seeds or not seeds[0].attempts or state.base is not None:
        return ""
    refusal, objection = seeds[0].attempts[0].refusal, seeds[0].attempts[0].objection
    if refusal is None:
        return f"the given kernel cannot be used: {objection}" if objection else ""
    where = f"{refusal.gate.value} ({refusal.reason})"
    return f"the given kernel was refused at gate {where}: {refusal.evidence}; look at: {refusal.hint}"


def near_floor(state: RunState) -> str:
    """Whether the base is so near the roofline floor that nothing is left to win; empty when it is not."""
    kernel, budget = state.base_kernel, state.started.settings.budget
    headroom = kernel.score.headroom if kernel is not None and kernel.score.measured else None
    if headroom is None or headroom > budget.headroom:
        return ""
    return f"the kernel takes {headroom:.2f} times the roofline floor: too little is left to win"


def _used_up(stage: Stage, state: RunState) -> str:
    budget: Budget = state.started.settings.budget
    steps = state.steps_in(stage)
    allowed = budget.steps.get(stage, 0)
    if len(steps) >= allowed:
        return f"its {allowed} steps are used" if allowed != 1 else "its one step is used"
    recent = steps[-budget.patience :]
    if (
        stage is not Stage.SEED
        and len(recent) == budget.patience
        and not any(step.decision is Decision.PROMOTED for step in recent)
    ):
        return f"no gain in {budget.patience} tr{'ies' if budget.patience != 1 else 'y'}"
    return ""


SEARCH = (
    StageRow(
        Assignment(
            stage=Stage.SEED,
            objective="A first correct kernel file: simple, whole, right for every input.",
            may_change="Everything: there is nothing yet.",
            may_not_change="What the program computes, and its parameters.",
            metrics=(Metric.TIME,),
            categories=(),
        ),
        planner=None,
        sweeps=False,
    ),
    StageRow(
        Assignment(
            stage=Stage.STRUCTURE,
            objective="The best algorithmic structure: what is fused with what, which algorithm computes it, "
            "how many kernels there are and what travels between them through memory.",
            may_change="Which kernels exist, what each fuses, the algorithm of each, intermediate tensors.",
            may_not_change="What the program computes. Leave tile sizes, warps and cache hints for later.",
            metrics=(Metric.TIME, Metric.LAUNCHES, Metric.DRAM_TRAFFIC, Metric.TENSOR_CORE_USE),
            categories=CATEGORIES[Stage.STRUCTURE],
        ),
        planner="designer",
        sweeps=False,
    ),
    StageRow(
        Assignment(
            stage=Stage.MAPPING,
            objective="Work spread over the GPU so that every multiprocessor has enough of it all the time, "
            "and neighbours in time share data in L2.",
            may_change="Grid, program order, work per program, persistence, split loops, warps per program.",
            may_not_change="The structure contract: kernels, what each fuses, algorithm, launches.",
            metrics=(Metric.TIME, Metric.OCCUPANCY, Metric.SPILLS, Metric.L2_HIT_RATE),
            categories=CATEGORIES[Stage.MAPPING],
        ),
        planner="tuner",
        sweeps=True,
    ),
    StageRow(
        Assignment(
            stage=Stage.TILING,
            objective="Tiles that reuse what they load as much as registers and shared memory allow, "
            "with enough of them in flight to hide latency.",
            may_change="Block shapes, inner loop steps, pipeline stages, and the warps that go with them.",
            may_not_change="The structure contract, and the mapping decided before.",
            metrics=(
                Metric.TIME,
                Metric.REGISTERS,
                Metric.SPILLS,
                Metric.SHARED_MEMORY,
                Metric.TENSOR_CORE_USE,
            ),
            categories=CATEGORIES[Stage.TILING],
        ),
        planner="tuner",
        sweeps=True,
    ),
    StageRow(
        Assignment(
            stage=Stage.MEMORY,
            objective="Every byte moved once, in full-width transactions, from the nearest place with it.",
            may_change="Load and store width, masks, cache and eviction hints, operand layout, descriptors.",
            may_not_change="The structure contract, the mapping and the tiling decided before.",
            metrics=(
                Metric.TIME,
                Metric.DRAM_TRAFFIC,
                Metric.L2_HIT_RATE,
                Metric.LOAD_WIDTH,
                Metric.INSTRUCTIONS,
            ),
            categories=CATEGORIES[Stage.MEMORY],
        ),
        planner="tuner",
        sweeps=True,
    ),
)
"""The stages that write kernels, in order."""


def search(settings: Settings) -> tuple[StageRow, ...]:
    """The stages of a run with these settings: those of the table, or what an experiment makes of them.

    Without the contract a tuning stage may change the structure as well; without staging there is one stage
    behind the seed in which every kind of change is allowed.
    """
    if STAGING in settings.without:
        return SEARCH[0], _everything()
    if CONTRACT not in settings.without:
        return SEARCH
    return tuple(
        replace(row, assignment=replace(row.assignment, may_not_change="What the program computes."))
        if row.stage.tunes
        else row
        for row in SEARCH
    )


def _everything() -> StageRow:
    """One stage for all kinds of change. The designer plans; what a file leaves open is swept."""
    rows = SEARCH[1:]
    assignment = Assignment(
        stage=Stage.STRUCTURE,
        objective="The fastest program: its structure, and everything that fits it to the GPU.",
        may_change="Everything: structure, mapping, tiles, access to memory.",
        may_not_change="What the program computes.",
        metrics=tuple(dict.fromkeys(m for row in rows for m in row.assignment.metrics)),
        categories=tuple(dict.fromkeys(c for row in rows for c in row.assignment.categories)),
    )
    return StageRow(assignment, planner="designer", sweeps=True)


REGRADE = StageRow(
    Assignment(
        stage=Stage.REGRADE,
        objective="Certainty: the best kernel judged once more with full care.",
        may_change="Nothing.",
        may_not_change="Anything.",
        metrics=(Metric.TIME,),
        categories=(),
    ),
    planner=None,
    sweeps=False,
)

STAGES = (*SEARCH, REGRADE)
