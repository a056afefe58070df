"""The recipes that the steps of a run stand for, and their files.

A recipe is never stored: the seed's is computed again, and changed by every step that was promoted, each as
it was repaired and at the values that its sweep found best. Captured programs and written files are kept,
since both take time and depend on their arguments alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from egg.core.errors import TaskError
from egg.core.plan import Plan
from egg.core.policy import LibraryCalls
from egg.core.roles import Brief
from egg.core.source import Task
from egg.core.stage import Stage
from egg.core.step import Attempt, Decision, Step
from egg.expert.assemble import NothingToWrite, Written, graph_of, kernel_file, short
from egg.expert.deciding.first import first_recipe
from egg.expert.deciding.given import ANEW
from egg.expert.deciding.repairs import repaired
from egg.expert.deciding.translation import is_translation, own_attempts, turns_constants
from egg.expert.graph import Graph
from egg.expert.moves import Move, Open, Recipe, Set, moves_in
from egg.expert.parts import Unfit
from egg.expert.pattern import Repair
from egg.hardware.gpus import resolve


def base_recipe(brief: Brief) -> Recipe:
    """The recipe of the base: the seed's, changed by every step that was kept, each as it was repaired and
    at the values that its sweep found best. Where the base has none: of the last kernel that has one."""
    recipe, seeds = Recipe(), []
    for step in steps_of(brief):
        if step.stage is Stage.SEED:
            seeds += own_attempts(step.attempts)
        if step.decision is not Decision.PROMOTED or is_translation(step) or turns_constants(step.plan):
            continue
        if step.plan is None:
            start, attempts = initial_recipe(brief), seeds
        elif step.plan.change == ANEW:
            start, attempts = initial_recipe(brief), step.attempts
        else:
            start, attempts = recipe.after(*moves_in(step.plan.change)), step.attempts
        found = repaired_recipe(brief, start, [attempt for attempt in attempts if attempt.failed])
        recipe = _settled(brief, found or start, step)
    return recipe


def _settled(brief: Brief, recipe: Recipe, step: Step) -> Recipe:
    """Constants that were open get what was measured as best; with them all others of their group, since a
    rule might choose them otherwise beside the new value."""
    moves = moves_in(step.plan.change) if step.plan is not None else ()
    opened = [move for move in moves if isinstance(move, Open)]
    if not opened:
        return recipe
    points = {point.candidate: point.values for point in step.sweep.points} if step.sweep else {}
    best = points.get(str(step.candidate), {})
    settled: list[Move] = []
    written = written_for(brief, recipe)
    for group, part in zip(written.structure.groups, written.structure.parts, strict=True):
        for constant in part.constants if group.name in {move.group for move in opened} else ():
            name = short(group.name, constant.name)
            first = next((m.values[0] for m in opened if (m.group, m.name) == (group.name, name)), None)
            value = best.get(constant.name, constant.value if first is None else first)
            settled.append(Set(group.name, name, value))
    return recipe.closed().after(*settled)


def planned_recipe(brief: Brief, plan: Plan) -> Recipe:
    """The recipe that a plan asks for: the base's with the plan's moves, or the first one anew."""
    return initial_recipe(brief) if plan.change == ANEW else base_recipe(brief).after(*moves_in(plan.change))


def tried_changes(brief: Brief) -> set[str]:
    """What the plans of the run changed so far, as their sentences."""
    return {step.plan.change for step in steps_of(brief) if step.plan is not None}


def steps_of(brief: Brief) -> list[Step]:
    """All steps of the run so far, the stages that ended first; a stage may have been opened again."""
    found = [*(step for handoff in brief.handoffs for step in handoff.tried), *brief.trajectory.steps]
    return list({step.number: step for step in found}.values())


def seed_recipe(brief: Brief, chain: Sequence[Attempt]) -> Recipe | None:
    """The seed's recipe after all that was refused of it, in earlier steps and in this one."""
    earlier = [a for step in steps_of(brief) if step.stage is Stage.SEED for a in own_attempts(step.attempts)]
    return repaired_recipe(brief, initial_recipe(brief), [*earlier, *chain])


def initial_recipe(brief: Brief) -> Recipe:
    """The recipe to begin with; the plain one where nothing can be written, which says why."""
    try:
        return _first_of(brief.task, brief.facts.gpu.name, library_allowed(brief))
    except (NothingToWrite, TaskError, Unfit):
        return Recipe()


@lru_cache(maxsize=8)
def _first_of(task: Task, gpu: str, library: bool) -> Recipe:
    return first_recipe(lambda recipe: _file(task, recipe, gpu), resolve(gpu), library)


def repaired_recipe(brief: Brief, start: Recipe, attempts: Sequence[Attempt]) -> Recipe | None:
    """``start`` after one repair for each refusal; ``None`` where the ladder ended."""
    recipe = start
    for at, attempt in enumerate(attempts):
        if attempt.refusal is not None:
            found = next_repair(brief, recipe, attempts[: at + 1])
            if found is None:
                return None
            recipe = found[0]
    return recipe


def next_repair(brief: Brief, recipe: Recipe, attempts: Sequence[Attempt]) -> tuple[Recipe, Repair] | None:
    """``recipe`` written more carefully after the last of these attempts, all of which were refused."""
    refusal = attempts[-1].refusal
    assert refusal is not None
    tried = {attempt.candidate for attempt in attempts}
    return repaired(recipe, refusal, tried, lambda other: written_for(brief, other), library_allowed(brief))


# -- files -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _graph(task: Task) -> Graph:
    return graph_of(task)


@lru_cache(maxsize=32)
def _file(task: Task, recipe: Recipe, gpu: str) -> Written:
    return kernel_file(task, _graph(task), recipe, resolve(gpu))


def written_for(brief: Brief, recipe: Recipe) -> Written:
    """The file of a recipe, for the task and the GPU of a brief."""
    return _file(brief.task, recipe, brief.facts.gpu.name)


def library_allowed(brief: Brief) -> bool:
    return brief.policy.library_calls is LibraryCalls.ALLOW
