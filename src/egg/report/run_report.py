"""Everything a page about one run shows, made from its folder alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from egg.analysis.diagnose import diagnose
from egg.analysis.evaluated import profile_of
from egg.bench.row_files import read_rows
from egg.bench.rows import Row, latest
from egg.core.bottleneck import MEANINGS, Bottleneck
from egg.core.errors import EggError, UsageError
from egg.core.evaluation import Accepted, Baseline, Evaluation, Interval, Measured
from egg.core.policy import Level as Care
from egg.core.step import Decision, Kernel, Score
from egg.engine.log import LOG, Entry, read_log
from egg.engine.state import RunState, fold
from egg.report.bench_report import ROWS
from egg.report.numbers import money, opponent, plural, seconds
from egg.report.roofline import Roofline
from egg.report.run_charts import Contestant, Fate, Level, Mark
from egg.report.run_evidence import Evidence, Facts, evidence_of
from egg.report.run_roofline import judged_on, roofline_of
from egg.report.run_story import StepStory, Story, story_of

FARTHEST = 8.0
"""The roofline floor is drawn among the steps where it is at most so many times as fast as the best."""


_UNFIT = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
"""Errors that an edited log can raise."""


@dataclass(frozen=True)
class RunReport:
    """One run, as it stands in its log."""

    folder: str
    """Its name, for commands; nothing of the machine it lies on."""
    entries: tuple[Entry, ...]
    state: RunState
    story: Story
    log_hash: str
    """SHA-256 of the log file."""
    row: Row | None = None
    """The row of the bench that this run belongs to. At level ``quick`` a bench judges the kernel itself and
    leaves the log before the regrade, so that only the row says that the task has ended."""

    @property
    def task(self) -> str:
        return self.state.started.task.name

    @property
    def verdict(self) -> str:
        """``faster``, ``unmeasured``, ``reference``; the verdict of the row; or ``open`` while it goes on."""
        if self.state.closed is not None:
            return self.state.closed.verdict
        return self.row.verdict.kind if self.row is not None else "open"

    @property
    def reason(self) -> str:
        if self.state.closed is not None:
            return self.state.closed.reason
        if self.row is not None:
            return (
                f"The search has ended; the bench judged its kernel at level {self.row.policy.level.value}."
            )
        return "The run has not ended: this is how far it has come."

    @property
    def kernel(self) -> Kernel | None:
        """The one that is returned, or would be; ``None`` while nothing is accepted."""
        closed = self.state.closed
        returned = self.state.kernels.get(closed.candidate) if closed and closed.candidate else None
        return returned or self.state.best_kernel

    @property
    def source(self) -> str | None:
        return self.kernel.candidate.source if self.kernel is not None else None

    @property
    def last_file(self) -> str | None:
        """What was written last, whether or not it was accepted."""
        return [*self.state.sources.values()][-1] if self.state.sources else None

    @property
    def evaluation(self) -> Evaluation | None:
        return self.kernel.evaluation if self.kernel is not None else None

    @property
    def accepted(self) -> Accepted | None:
        verdict = self.evaluation.verdict if self.evaluation is not None else None
        return verdict if isinstance(verdict, Accepted) else None

    @property
    def measured(self) -> Measured | None:
        performance = self.accepted.performance if self.accepted is not None else None
        return performance if isinstance(performance, Measured) else None

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        return self.measured.baselines if self.measured is not None else ()

    @property
    def made_in(self) -> int | None:
        """The step that made the kernel."""
        found = self.evaluation.candidate_hash if self.evaluation is not None else None
        steps = [s.step for s in self.story.steps if s.step.candidate == found]
        return steps[0].number if steps and found is not None else None

    # -- pictures ----------------------------------------------------------------------------------

    @cached_property
    def roofline(self) -> Roofline | None:
        gpu = judged_on(self.evaluation, self.state.gpu) if self.evaluation is not None else None
        if self.evaluation is None or gpu is None:
            return None
        return roofline_of(self.task, self.state.started.facts, self.evaluation, gpu)

    @cached_property
    def bottleneck(self) -> Bottleneck | None:
        """What holds the kernel back; ``None`` where too little is known of it."""
        evaluation = self.evaluation
        gpu = judged_on(evaluation, self.state.gpu) if evaluation is not None else None
        profile = profile_of(evaluation, gpu) if evaluation is not None and gpu is not None else None
        if profile is None or gpu is None or self.kernel is None:
            return None
        floor = self.kernel.score.floor_milliseconds
        found = diagnose(profile, gpu, floor_milliseconds=floor).whole
        return found if found.known else None

    @property
    def held_back(self) -> str:
        return MEANINGS[self.bottleneck.limiter] if self.bottleneck is not None else ""

    @property
    def contestants(self) -> list[Contestant]:
        """The kernel, its opponents and the floor, for one picture."""
        kernel, measured = self.kernel, self.measured
        if kernel is None:
            return []
        own = kernel.score.milliseconds
        found = [Contestant("this kernel", own.median, "own", own if measured is not None else None)]
        found += [
            Contestant(opponent(b.name), b.milliseconds.median, "other", b.milliseconds)
            for b in self.baselines
        ]
        floor = kernel.score.floor_milliseconds
        return [*found, Contestant("roofline floor", floor, "floor")] if floor else found

    @property
    def speed_unit(self) -> str:
        measured = any(score.measured for score in self.story.scores.values())
        return "speedup over eager PyTorch" if measured else "predicted, relative to the first kernel"

    @cached_property
    def marks(self) -> list[Mark]:
        marks = [self._mark(step) for step in self.story.steps]
        last = self.kernel
        regraded = last is not None and last.evaluation.policy.level is not Care.QUICK
        if regraded and last is not None and marks:
            speed = self._speed(last.score)
            marks.append(Mark("end", "regrade", Fate.KEPT, speed, None, "judged again at level full"))
        return marks

    def _mark(self, story: StepStory) -> Mark:
        step = story.step
        base = self.story.scores.get(step.base) if step.base is not None else None
        predicted = None
        if base is not None and step.plan is not None:
            predicted = self._speed(base).median * step.plan.prediction.speedup
        fates = {Decision.PROMOTED: Fate.KEPT, Decision.PASSED: Fate.PASSED}
        speed = self._speed(story.score) if story.score is not None else None
        if speed is None and base is not None and step.gain is not None:
            speed = _times(self._speed(base), step.gain.ratio)  # timed beside the base, and not judged
        fate = fates.get(step.decision, Fate.TRIED if speed is not None else Fate.FAILED)
        text = "; ".join(part for part in (story.outcome, step.decision.value, step.reason) if part)
        return Mark(str(step.number), step.stage.value, fate, speed, predicted, text)

    def _speed(self, score: Score) -> Interval:
        """Over eager where it was measured; else over the first kernel, by predicted times."""
        if score.speedup is not None:
            return score.speedup
        first = next(iter(self.story.scores.values())).milliseconds.median
        times = score.milliseconds
        return Interval(first / times.median, first / times.high, first / times.low)

    @property
    def levels(self) -> list[Level]:
        """What the steps are compared with."""
        measured = self.measured
        if measured is None:
            return [Level("first kernel", 1.0, "eager")]
        eager = next((b for b in measured.baselines if b.name == "eager"), None)
        if eager is None:
            return []
        levels = [Level("eager", 1.0, "eager")]
        for b in measured.baselines:
            if b.name == "compile" and b.milliseconds.median > 0:
                speed = eager.milliseconds.median / b.milliseconds.median
                levels.append(Level(opponent(b.name), speed, "compile"))
        if measured.floor_milliseconds:
            speed = eager.milliseconds.median / measured.floor_milliseconds
            if speed < FARTHEST * eager.speedup.median:
                levels.append(Level("roofline floor", speed, "floor"))
        return levels

    # -- facts -------------------------------------------------------------------------------------

    @property
    def options(self) -> Facts:
        """The options of the run, in a few words."""
        settings, facts = self.state.started.settings, self.state.started.facts
        gpu = self.measured.gpu if self.measured is not None else f"{facts.gpu.name} (not measured)"
        model = f", model {settings.model.name}" if settings.model is not None else ""
        return (
            ("GPU", gpu),
            ("precision", settings.precision.value),
            ("library calls", settings.library_calls.value),
            ("team", settings.team + model),
            ("budget", settings.budget.name),
        )

    @property
    def spent(self) -> str:
        ledger = self.state.ledger
        parts = [plural(len(self.state.steps), "step"), plural(ledger.evaluations, "evaluation")]
        parts.append(f"{seconds(ledger.seconds)} of work")
        if ledger.calls:
            parts.append("1 reply" if ledger.calls == 1 else f"{ledger.calls:,} replies")
        if ledger.usage.total:
            parts.append(plural(ledger.usage.total, "token"))
            parts.append(_price(ledger.cost, ledger.unpriced_calls, ledger.calls))
        return ", ".join(parts)

    @cached_property
    def evidence(self) -> Evidence:
        """Everything needed to believe it, or to repeat it."""
        return evidence_of(self.folder, self.entries, self.state, self.evaluation, self.log_hash)


def read_run(folder: Path) -> RunReport:
    """The run in ``folder``, ended or not."""
    entries = read_log(folder)
    events = [entry.event for entry in entries]
    try:
        state = fold(events)
        story = story_of(events, state)
    except _UNFIT as reason:
        raise UsageError(
            f"the log in {folder} contradicts itself: {reason}", "restore events.jsonl from a copy"
        ) from reason
    digest = hashlib.sha256((folder / LOG).read_bytes()).hexdigest()
    return RunReport(folder.resolve().name, entries, state, story, digest, _row_of(folder.resolve()))


def _row_of(folder: Path) -> Row | None:
    """The row of a run that lies in a bench; ``None`` where the rows cannot be read."""
    file, name = folder.parent.parent / ROWS, f"{folder.parent.name}/{folder.name}"
    if file.is_symlink() or not file.is_file():
        return None
    try:
        rows = latest(read_rows(file)).values()
    except EggError:
        return None  # the report on the bench names the fault; this page is about the run
    return next((row for row in rows if row.run == name), None)


def _times(speed: Interval, ratio: float) -> Interval:
    return Interval(speed.median * ratio, speed.low * ratio, speed.high * ratio)


def _price(cost: float, unpriced: int, calls: int) -> str:
    if unpriced == calls:
        return "no price known"
    return money(cost) + (f" and {plural(unpriced, 'unpriced call')}" if unpriced else "")
