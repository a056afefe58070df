"""The built-in team: the four roles over graph, patterns and moves, without a model.

Nothing is remembered from one question to the next: the recipe of the base is read off the steps that a
brief shows, so a run that is resumed or replayed comes to the same files. What costs time, capturing the
program, is kept per task.

- The coder's seed is the recipe that should be the fastest; a repair takes the next more careful one.
- The designer offers the other structures worth trying, each once, in the order of their promise.
- The tuner opens the constants of the groups that matter for a sweep, stage by stage.
- The debugger says which rule the next repair follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from egg.core.errors import TaskError
from egg.core.evaluation import Refusal
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Prediction, Unusable
from egg.core.roles import Brief, Failure
from egg.core.source import Task
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Decision, Step
from egg.expert.assemble import NothingToWrite, Written, graph_of, kernel_file
from egg.expert.graph import Graph
from egg.expert.mending import mended
from egg.expert.moves import Open, Recipe, moves_in, told
from egg.expert.options import options
from egg.hardware.gpus import find


class ExpertTeam:
    """All four roles."""

    @property
    def designer(self) -> ExpertTeam:
        return self

    @property
    def tuner(self) -> ExpertTeam:
        return self

    @property
    def coder(self) -> ExpertTeam:
        return self

    @property
    def debugger(self) -> ExpertTeam:
        return self

    # -- structure -----------------------------------------------------------------------------------

    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        """The next structure on the list that was not tried."""
        graph, recipe = _graph(brief.task), base_recipe(brief)
        tried = {step.plan.change for step in _steps(brief) if step.plan is not None}
        for option in options(graph, recipe):
            change = told(option.sentence, option.moves)
            if change not in tried:
                prediction = Prediction(option.promise, Metric.TIME, option.expectation)
                return Plan(
                    option.category, option.against, change, prediction, _offered(brief, option.skills)
                )
        return Pass("no other structure is worth a try")

    # -- tuning --------------------------------------------------------------------------------------

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        """Open the constants of one group that this stage is about; the heaviest group first."""
        written = _written(brief, base_recipe(brief))
        tried = {step.plan.change for step in _steps(brief) if step.plan is not None}
        for group, part in zip(written.structure.groups, written.structure.parts, strict=True):
            names = tuple(
                constant.name
                for constant in part.constants
                if len(constant.choices) > 1 and _concerns(constant.name, brief.assignment.stage)
            )
            change = told(f"measure other values of {', '.join(names)}", [Open(group.name, names)])
            if names and change not in tried:
                prediction = Prediction(1.05, Metric.TIME, "the best of the values around the rule's")
                category = _CATEGORY[brief.assignment.stage]
                return Plan(category, "the rule's tiles are a guess", change, prediction, _offered(brief, ()))
        return Pass("no constant is left to try")

    # -- writing -------------------------------------------------------------------------------------

    def seed(self, brief: Brief) -> Draft | Unusable:
        return _draft(brief, _mended_so_far(Recipe(), brief))

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        return _draft(brief, base_recipe(brief).after(*moves_in(plan.change)))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        start = Recipe() if failure.plan is None else base_recipe(brief).after(*moves_in(failure.plan.change))
        recipe = _after_refusals(start, brief)
        if recipe is None:
            return Unusable("no simpler way to write it is left")
        return _draft(brief, recipe)

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        refusal = failure.refusal
        if refusal is None:
            return Unusable("there is no refusal to explain")
        return Diagnosis(f"{refusal.gate.value}: {refusal.reason}", mended(refusal, 0).sentence)


# -- what the log says ---------------------------------------------------------------------------------


def base_recipe(brief: Brief) -> Recipe:
    """The recipe of the base: the seed's, changed by every step that was kept, each as it was repaired."""
    recipe = Recipe()
    for step in _steps(brief):
        if step.decision is Decision.PROMOTED:
            moves = moves_in(step.plan.change) if step.plan is not None else ()
            recipe = _repaired(
                recipe.after(*moves), [a.refusal for a in step.attempts if a.refusal is not None]
            )
    return recipe


def _steps(brief: Brief) -> list[Step]:
    """All steps of the run so far, the stages that ended first."""
    return [*(step for handoff in brief.handoffs for step in handoff.tried), *brief.trajectory.steps]


def _repaired(recipe: Recipe, refusals: Sequence[Refusal]) -> Recipe:
    for count, refusal in enumerate(refusals):
        recipe = recipe.after(*mended(refusal, count).moves)
    return recipe


def _after_refusals(recipe: Recipe, brief: Brief) -> Recipe | None:
    refusals = [attempt.refusal for attempt in brief.trajectory.chain if attempt.refusal is not None]
    repaired = _repaired(recipe, refusals)
    return repaired if repaired != recipe else None


def _mended_so_far(recipe: Recipe, brief: Brief) -> Recipe:
    """A seed after failed seeds starts where the last one gave up."""
    for step in brief.trajectory.steps:
        recipe = _repaired(recipe, [a.refusal for a in step.attempts if a.refusal is not None])
    return recipe


# -- writing -------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _graph(task: Task) -> Graph:
    return graph_of(task)


def _written(brief: Brief, recipe: Recipe) -> Written:
    gpu = find(brief.facts.gpu.name)
    assert gpu is not None, "a run's GPU is in the table"
    return kernel_file(brief.task, _graph(brief.task), recipe, gpu)


def _draft(brief: Brief, recipe: Recipe) -> Draft | Unusable:
    try:
        return Draft(_written(brief, recipe).source)
    except (NothingToWrite, TaskError) as reason:
        return Unusable(str(reason))


# -- which constants a stage is about -----------------------------------------------------------------

_MAPPED = ("NUM_WARPS", "GROUP_M", "SPLIT_K", "SPLITS", "PROGRAMS")
_TILED = ("BLOCK", "NUM_STAGES", "ROWS", "TILE")
_CATEGORY = {Stage.MAPPING: Category.WORK_PER_PROGRAM, Stage.TILING: Category.TILE_SHAPE}


def _concerns(constant: str, stage: Stage) -> bool:
    if stage is Stage.MAPPING:
        return any(constant.endswith(name) for name in _MAPPED)
    return stage is Stage.TILING and any(name in constant for name in _TILED)


def _offered(brief: Brief, wanted: Sequence[str]) -> str | None:
    """The first of the wanted skills that was offered for this step."""
    names = {skill.name for skill in brief.skills}
    return next((name for name in wanted if name in names), None)
