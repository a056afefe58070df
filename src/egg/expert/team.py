"""The built-in team: the four roles over graph, patterns and moves, without a model.

Nothing is remembered from one question to the next: the recipe of the base is read off the steps that a
brief shows, so a run that is resumed or replayed comes to the same files. What costs time, capturing the
program, is kept per task.

- The coder's seed is the recipe that should be the fastest (:mod:`egg.expert.deciding.first`); a repair takes
  the next more careful one (:mod:`egg.expert.deciding.repairs`).
- The designer prices other structures and tries those that promise enough
  (:mod:`egg.expert.deciding.options`).
- The tuner turns the constants that should relieve what the heaviest group waits for
  (:mod:`egg.expert.deciding.tuning`).
- The debugger says which rule the next repair follows.
- A file that the run was given to begin with has no recipe: :mod:`egg.expert.deciding.given`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from egg.core.errors import TaskError
from egg.core.evaluation import Accepted
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Prediction, Unusable, Weighed
from egg.core.policy import LibraryCalls
from egg.core.resources import KernelResources
from egg.core.roles import Brief, Failure
from egg.core.source import Task
from egg.core.stage import Category, Metric, Stage
from egg.core.step import Attempt, Decision, Step
from egg.expert.assemble import NothingToWrite, Written, graph_of, kernel_file, short
from egg.expert.deciding.evidence import inexact
from egg.expert.deciding.first import first_recipe
from egg.expert.deciding.given import ANEW, builds_on_given, opened, turned
from egg.expert.deciding.options import (
    Base,
    forward_seconds,
    options,
    predicted_gain,
    sketched,
    worth_trying,
)
from egg.expert.deciding.repairs import repaired
from egg.expert.deciding.tuning import tunings
from egg.expert.graph import Graph
from egg.expert.moves import Move, Open, Recipe, Set, change_text, moves_in
from egg.expert.parts import Unfit
from egg.expert.pattern import Alternative, Repair
from egg.hardware.gpus import resolve

FEWEST_WRITTEN, NODES_WRITTEN = 2, 400
"""Files that pricing may write besides the base, for any program, and how many operators in all for small
ones. A count and no clock: a run that is replayed must come to the same plans."""


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
        """The structure with the largest predicted gain that was not tried."""
        tried = _tried(brief)
        if builds_on_given(_steps(brief)):
            return Pass("this team has one other structure, and tried it") if ANEW in tried else _anew(brief)
        recipe = base_recipe(brief)
        priced = _priced(brief, recipe)
        for gain, option in worth_trying(priced):
            change = change_text(option.sentence, option.moves)
            if change not in tried and _differs(brief, recipe, option.moves):
                prediction = Prediction(gain, Metric.TIME, option.expectation)
                skill = _offered(brief, option.skills)
                return Plan(option.category, option.against, change, prediction, skill)
        best = max((gain for gain, _ in priced), default=None)
        if best is None:
            return Pass("there is no other way to write it")
        return Pass(f"no other structure is worth a try: of {len(priced)} the best promises {best:.2f}x")

    def alternatives(self, brief: Brief) -> tuple[Weighed, ...]:
        """Every other structure that it can write for the base, tried or not, the largest predicted gain
        first; for a team that goes on from its kernel."""
        if brief.base is None or builds_on_given(_steps(brief)):
            return ()
        recipe, tried = base_recipe(brief), _tried(brief)
        try:
            priced = _priced(brief, recipe)
        except (NothingToWrite, TaskError, Unfit):
            return ()
        found = [
            Weighed(
                option.sentence, option.against, gain, change_text(option.sentence, option.moves) in tried
            )
            for gain, option in priced
        ]
        return tuple(sorted(found, key=lambda weighed: (-weighed.predicted, weighed.change)))

    # -- tuning --------------------------------------------------------------------------------------

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        """The constants that should relieve what the heaviest group waits for, at a few values."""
        tried = _tried(brief)
        if brief.base is not None and builds_on_given(_steps(brief)):
            stage, source = brief.assignment.stage, brief.base.candidate.source
            plans = (plan for plan in turned(source, stage, brief.diagnosis) if plan.change not in tried)
            return next(plans, Pass("the given file has no constant for this stage that promises a gain"))
        if brief.diagnosis is None:
            return Pass("nothing is known of what the kernels wait for")
        recipe = base_recipe(brief)
        base = _base(brief, recipe)
        together = brief.side_by_side and brief.base is not None and brief.base.score.measured
        for tuning in tunings(base, brief.assignment.stage, together=together):
            change = change_text(tuning.sentence, tuning.moves)
            if change not in tried and _differs(brief, recipe, tuning.moves):
                prediction = Prediction(tuning.gain, Metric.TIME, tuning.effect)
                skill = _offered(brief, tuning.skills)
                return Plan(tuning.category, tuning.against, change, prediction, skill)
        whole = brief.diagnosis.whole
        near = f", at {whole.headroom:.2f} times its floor" if whole.headroom is not None else ""
        return Pass(f"no constant of this stage promises a gain: {whole.limiter.value}{near}")

    # -- writing -------------------------------------------------------------------------------------

    def seed(self, brief: Brief) -> Draft | Unusable:
        """From the plain recipe; after seeds that failed, where the last one gave up."""
        return _draft(brief, _seeded(brief, ()))

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        if brief.base is not None and plan.change != ANEW and builds_on_given(_steps(brief)):
            return Draft(opened(brief.base.candidate.source, plan))
        return _draft(brief, _planned(brief, plan))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        """A seed is repaired until it works. A change of it is not worth that, unless it is only inexact."""
        if failure.refusal is None:
            return Unusable(failure.objection)
        if failure.plan is None:
            return _draft(brief, _seeded(brief, brief.trajectory.chain))
        if failure.plan.change != ANEW and (brief.assignment.stage.tunes or not inexact(failure.refusal)):
            return Unusable("the base stands: this change does not work here")
        return _draft(brief, _climbed(brief, _planned(brief, failure.plan), brief.trajectory.chain))

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        refusal = failure.refusal
        if refusal is None:
            return Unusable("there is no refusal to explain")
        *before, last = brief.trajectory.chain
        if failure.plan is None:
            recipe = _seeded(brief, before)
        else:
            recipe = _climbed(brief, _planned(brief, failure.plan), before)
        found = recipe and _repaired(brief, recipe, [*before, last])
        sentence = found[1].sentence if found else "no more careful way to write it is left"
        return Diagnosis(f"{refusal.gate.value}: {refusal.reason}", sentence)


# -- what the log says ---------------------------------------------------------------------------------


def base_recipe(brief: Brief) -> Recipe:
    """The recipe of the base: the seed's, changed by every step that was kept, each as it was repaired and
    at the values that its sweep found best."""
    recipe, seeds = Recipe(), []
    for step in _steps(brief):
        if step.stage is Stage.SEED:
            seeds += step.attempts
        if step.decision is not Decision.PROMOTED:
            continue
        if step.plan is None:
            start, attempts = _first(brief), seeds
        elif step.plan.change == ANEW:
            start, attempts = _first(brief), step.attempts
        else:
            start, attempts = recipe.after(*moves_in(step.plan.change)), step.attempts
        found = _climbed(brief, start, [attempt for attempt in attempts if attempt.failed])
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
    written = _written(brief, recipe)
    for group, part in zip(written.structure.groups, written.structure.parts, strict=True):
        for constant in part.constants if group.name in {move.group for move in opened} else ():
            name = short(group.name, constant.name)
            first = next((m.values[0] for m in opened if (m.group, m.name) == (group.name, name)), None)
            value = best.get(constant.name, constant.value if first is None else first)
            settled.append(Set(group.name, name, value))
    return recipe.closed().after(*settled)


def _planned(brief: Brief, plan: Plan) -> Recipe:
    return _first(brief) if plan.change == ANEW else base_recipe(brief).after(*moves_in(plan.change))


def _tried(brief: Brief) -> set[str]:
    return {step.plan.change for step in _steps(brief) if step.plan is not None}


def _steps(brief: Brief) -> list[Step]:
    """All steps of the run so far, the stages that ended first; a stage may have been opened again."""
    found = [*(step for handoff in brief.handoffs for step in handoff.tried), *brief.trajectory.steps]
    return list({step.number: step for step in found}.values())


def _seeded(brief: Brief, chain: Sequence[Attempt]) -> Recipe | None:
    """The seed's recipe after all that was refused of it, in earlier steps and in this one."""
    earlier = [a for step in _steps(brief) if step.stage is Stage.SEED for a in step.attempts]
    return _climbed(brief, _first(brief), [*earlier, *chain])


def _first(brief: Brief) -> Recipe:
    """The recipe to begin with; the plain one where nothing can be written, which says why."""
    try:
        return _first_of(brief.task, brief.facts.gpu.name, _library(brief))
    except (NothingToWrite, TaskError, Unfit):
        return Recipe()


@lru_cache(maxsize=8)
def _first_of(task: Task, gpu: str, library: bool) -> Recipe:
    return first_recipe(lambda recipe: _file(task, recipe, gpu), resolve(gpu), library)


def _climbed(brief: Brief, start: Recipe, attempts: Sequence[Attempt]) -> Recipe | None:
    """``start`` after one repair for each refusal; ``None`` where the ladder ended."""
    recipe = start
    for at, attempt in enumerate(attempts):
        if attempt.refusal is not None:
            found = _repaired(brief, recipe, attempts[: at + 1])
            if found is None:
                return None
            recipe = found[0]
    return recipe


def _repaired(brief: Brief, recipe: Recipe, attempts: Sequence[Attempt]) -> tuple[Recipe, Repair] | None:
    refusal = attempts[-1].refusal
    assert refusal is not None
    tried = {attempt.candidate for attempt in attempts}
    return repaired(recipe, refusal, tried, lambda other: _written(brief, other), _library(brief))


# -- what is known of the base --------------------------------------------------------------------------


def _base(brief: Brief, recipe: Recipe) -> Base:
    return Base(
        _written(brief, recipe),
        resolve(brief.facts.gpu.name),
        recipe.grades,
        _kernels(brief),
        brief.diagnosis,
    )


def _kernels(brief: Brief) -> tuple[KernelResources, ...]:
    verdict = brief.base.evaluation.verdict if brief.base is not None else None
    return verdict.performance.kernels if isinstance(verdict, Accepted) else ()


def _anew(brief: Brief) -> Plan | Pass:
    """The team's own first kernel in the place of a given one, priced by its estimated time."""
    recipe = _first(brief)
    try:
        own = _base(brief, recipe)
    except (NothingToWrite, TaskError, Unfit) as reason:
        return Pass(f"this team cannot write the program anew: {reason}")
    assert brief.base is not None
    given, estimate = brief.base.score.milliseconds.median, forward_seconds(own) * 1e3
    expectation = f"{estimate:.3g} ms by estimate, where the given kernel takes {given:.3g} ms"
    prediction = Prediction(given / max(estimate, 1e-9), Metric.TIME, expectation)
    against = "the structure of the given kernel, which this team did not choose"
    return Plan(Category.ALGORITHM_REPLACEMENT, against, ANEW, prediction)


def _priced(brief: Brief, recipe: Recipe) -> list[tuple[float, Alternative]]:
    """Every option that can be written, with its predicted gain.

    A long program takes seconds to write, so of those that must be written whole only the first are.
    """
    base, library = _base(brief, recipe), _library(brief)
    left = max(FEWEST_WRITTEN, NODES_WRITTEN // max(1, len(base.structure.graph.nodes)))
    found: list[tuple[float, Alternative]] = []
    for option in options(base, library):
        try:
            other = sketched(base, option, recipe.settings)
            if other is None:
                left -= 1
                if left < 0:
                    continue
                other = _written(brief, recipe.after(*option.moves))
        except (NothingToWrite, Unfit, TaskError):
            continue
        if library or not other.structure.left_to_pytorch:
            found.append((predicted_gain(base, other, option), option))
    return found


def _differs(brief: Brief, recipe: Recipe, moves: Sequence[Move]) -> bool:
    """Whether moves make another file: a pattern may have no use for an option."""
    try:
        return _written(brief, recipe.after(*moves)).source != _written(brief, recipe).source
    except (NothingToWrite, TaskError, Unfit):
        return False


# -- writing -------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _graph(task: Task) -> Graph:
    return graph_of(task)


@lru_cache(maxsize=32)
def _file(task: Task, recipe: Recipe, gpu: str) -> Written:
    return kernel_file(task, _graph(task), recipe, resolve(gpu))


def _written(brief: Brief, recipe: Recipe) -> Written:
    return _file(brief.task, recipe, brief.facts.gpu.name)


def _library(brief: Brief) -> bool:
    return brief.policy.library_calls is LibraryCalls.ALLOW


def _draft(brief: Brief, recipe: Recipe | None) -> Draft | Unusable:
    if recipe is None:
        return Unusable("no more careful way to write it is left")
    try:
        written = _written(brief, recipe)
    except (NothingToWrite, TaskError, Unfit) as reason:
        return Unusable(str(reason))
    left = written.structure.left_to_pytorch
    if left and not _library(brief):
        return Unusable(f"library calls are forbidden, and no pattern covers {', '.join(left)}")
    return Draft(written.source)


def _offered(brief: Brief, wanted: Sequence[str]) -> str | None:
    """The first of the wanted skills that was offered for this step."""
    names = {skill.name for skill in brief.skills}
    return next((name for name in wanted if name in names), None)
