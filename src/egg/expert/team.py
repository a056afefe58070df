"""The built-in team: the four roles over graph, patterns and moves, without a model.

Nothing is remembered from one question to the next: the recipe of the base is read off the steps that a
brief shows (:mod:`egg.expert.deciding.recipes`), so a run that is resumed or replayed comes to the same
files.

- The coder's seed is the recipe that should be the fastest (:mod:`egg.expert.deciding.first`); a repair takes
  the next more careful one (:mod:`egg.expert.deciding.repairs`).
- The designer prices other structures and tries those that promise enough
  (:mod:`egg.expert.deciding.options`).
- The tuner turns the constants that should relieve what the heaviest group waits for
  (:mod:`egg.expert.deciding.tuning`).
- The debugger says which rule the next repair follows.
- A file that the run was given to begin with has no recipe: :mod:`egg.expert.deciding.given`. Neither has
  what torch.compile generated (:mod:`egg.expert.deciding.translation`).
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.analysis.generated import library_calls
from egg.core.errors import TaskError
from egg.core.evaluation import Accepted
from egg.core.plan import Diagnosis, Draft, Pass, Plan, Prediction, Unusable, Weighed
from egg.core.resources import KernelResources
from egg.core.roles import Brief, EveryRole, Failure
from egg.core.stage import Category, Metric
from egg.core.step import Kernel
from egg.expert.assemble import NothingToWrite
from egg.expert.compiled.translate import CompiledFile, compiled_file
from egg.expert.deciding.evidence import inexact
from egg.expert.deciding.given import ANEW, builds_on_given, opened, turned
from egg.expert.deciding.options import (
    Base,
    forward_seconds,
    options,
    predicted_gain,
    sketched,
    worth_trying,
)
from egg.expert.deciding.recipes import (
    base_recipe,
    initial_recipe,
    library_allowed,
    next_repair,
    planned_recipe,
    repaired_recipe,
    seed_recipe,
    steps_of,
    tried_changes,
    written_for,
)
from egg.expert.deciding.translation import (
    NO_OWN_KERNEL,
    lead_of_translation,
    turns_constants,
)
from egg.expert.deciding.tuning import tunings
from egg.expert.moves import Move, Recipe, change_text
from egg.expert.parts import Unfit
from egg.expert.pattern import Alternative
from egg.hardware.gpus import resolve

FEWEST_WRITTEN, NODES_WRITTEN = 2, 400
"""Files that pricing may write besides the base, for any program, and how many operators in all for small
ones. A count and no clock: a run that is replayed must come to the same plans."""


class ExpertTeam(EveryRole):
    """All four roles."""

    # -- structure -----------------------------------------------------------------------------------

    def design(self, brief: Brief) -> Plan | Pass | Unusable:
        """The structure with the largest predicted gain that was not tried."""
        tried = tried_changes(brief)
        if builds_on_given(steps_of(brief)):
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
        if lead_of_translation(steps_of(brief)) == NO_OWN_KERNEL:
            return Pass("torch.compile's structure is the base, and no kernel of this team's was accepted")
        if best is None:
            return Pass("there is no other way to write it")
        return Pass(f"no other structure is worth a try: of {len(priced)} the best promises {best:.2f}x")

    def alternatives(self, brief: Brief) -> tuple[Weighed, ...]:
        """Every other structure that it can write for the base, tried or not, the largest predicted gain
        first; for a team that goes on from its kernel."""
        if brief.base is None or builds_on_given(steps_of(brief)):
            return ()
        recipe, tried = base_recipe(brief), tried_changes(brief)
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
        tried = tried_changes(brief)
        if brief.base is not None and not _has_recipe(brief):
            stage, source = brief.assignment.stage, brief.base.candidate.source
            plans = (plan for plan in turned(source, stage, brief.diagnosis) if plan.change not in tried)
            return next(plans, Pass("the file has no constant for this stage that promises a gain"))
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
        return _draft(brief, seed_recipe(brief, ()))

    def optimize(self, brief: Brief, plan: Plan) -> Draft | Unusable:
        if brief.base is not None and plan.change != ANEW and turns_constants(plan):
            return Draft(opened(brief.base.candidate.source, plan))
        return _draft(brief, planned_recipe(brief, plan))

    def repair(self, brief: Brief, failure: Failure, diagnosis: Diagnosis) -> Draft | Unusable:
        """A seed is repaired until it works. A change of it is not worth that, unless it is only inexact."""
        if failure.refusal is None:
            return Unusable(failure.objection)
        if failure.plan is None:
            return _draft(brief, seed_recipe(brief, brief.trajectory.chain))
        if failure.plan.change != ANEW and (brief.assignment.stage.tunes or not inexact(failure.refusal)):
            return Unusable("the base stands: this change does not work here")
        return _draft(
            brief, repaired_recipe(brief, planned_recipe(brief, failure.plan), brief.trajectory.chain)
        )

    def translate(self, brief: Brief) -> Draft | Unusable:
        """What torch.compile generated, as a kernel file; its library calls only where those are allowed."""
        graph = brief.compiled.graph if brief.compiled is not None else None
        if graph is None:
            return Unusable("nothing was recorded of torch.compile")
        calls = library_calls(graph)
        if calls and not library_allowed(brief):
            return Unusable(f"library calls are forbidden, and torch.compile makes {', '.join(calls)}")
        found = compiled_file(brief.task, graph, resolve(brief.facts.gpu.name))
        return Draft(found.source) if isinstance(found, CompiledFile) else Unusable(found.reason)

    def diagnose(self, brief: Brief, failure: Failure) -> Diagnosis | Unusable:
        refusal = failure.refusal
        if refusal is None:
            return Unusable("there is no refusal to explain")
        *before, last = brief.trajectory.chain
        if failure.plan is None:
            recipe = seed_recipe(brief, before)
        else:
            recipe = repaired_recipe(brief, planned_recipe(brief, failure.plan), before)
        found = recipe and next_repair(brief, recipe, [*before, last])
        sentence = found[1].sentence if found else "no more careful way to write it is left"
        return Diagnosis(f"{refusal.gate.value}: {refusal.reason}", sentence)


# -- what is known of the base --------------------------------------------------------------------------


def _base(brief: Brief, recipe: Recipe) -> Base:
    """The file of ``recipe`` with what was seen of its kernels: it is the base, or a translation of
    torch.compile's code took its place."""
    replaced = lead_of_translation(steps_of(brief)) is not None
    kernel, diagnosis = (brief.own, brief.own_diagnosis) if replaced else (brief.base, brief.diagnosis)
    file, gpu = written_for(brief, recipe), resolve(brief.facts.gpu.name)
    return Base(file, gpu, recipe.grades, _kernels(kernel), diagnosis)


def _has_recipe(brief: Brief) -> bool:
    """Whether the base is a file of this team's own."""
    steps = steps_of(brief)
    return not builds_on_given(steps) and lead_of_translation(steps) is None


def _kernels(kernel: Kernel | None) -> tuple[KernelResources, ...]:
    verdict = kernel.evaluation.verdict if kernel is not None else None
    return verdict.performance.kernels if isinstance(verdict, Accepted) else ()


def _anew(brief: Brief) -> Plan | Pass:
    """The team's own first kernel in the place of a given one, priced by its estimated time."""
    recipe = initial_recipe(brief)
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
    """Every option that can be written, with its predicted gain over the base.

    Where the base is a translation of what torch.compile generated, options are those of the team's own
    kernel, and the translation's lead over that is taken off.
    A long program takes seconds to write, so of those that must be written whole only the first are.
    """
    lead = lead_of_translation(steps_of(brief)) or 1.0
    if lead == NO_OWN_KERNEL:
        return []
    base, library = _base(brief, recipe), library_allowed(brief)
    left = max(FEWEST_WRITTEN, NODES_WRITTEN // max(1, len(base.structure.graph.nodes)))
    found: list[tuple[float, Alternative]] = []
    for option in options(base, library):
        try:
            other = sketched(base, option, recipe.settings)
            if other is None:
                left -= 1
                if left < 0:
                    continue
                other = written_for(brief, recipe.after(*option.moves))
        except (NothingToWrite, Unfit, TaskError):
            continue
        if library or not other.structure.left_to_pytorch:
            found.append((predicted_gain(base, other, option) / lead, option))
    return found


def _differs(brief: Brief, recipe: Recipe, moves: Sequence[Move]) -> bool:
    """Whether moves make another file: a pattern may have no use for an option."""
    try:
        return written_for(brief, recipe.after(*moves)).source != written_for(brief, recipe).source
    except (NothingToWrite, TaskError, Unfit):
        return False


# -- writing -------------------------------------------------------------------------------------------


def _draft(brief: Brief, recipe: Recipe | None) -> Draft | Unusable:
    if recipe is None:
        return Unusable("no more careful way to write it is left")
    try:
        written = written_for(brief, recipe)
    except (NothingToWrite, TaskError, Unfit) as reason:
        return Unusable(str(reason))
    left = written.structure.left_to_pytorch
    if left and not library_allowed(brief):
        return Unusable(f"library calls are forbidden, and no pattern covers {', '.join(left)}")
    return Draft(written.source)


def _offered(brief: Brief, wanted: Sequence[str]) -> str | None:
    """The first of the wanted skills that was offered for this step."""
    names = {skill.name for skill in brief.skills}
    return next((name for name in wanted if name in names), None)
