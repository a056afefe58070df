"""Events and numbers of a run in words: one line each, clean of control characters."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from egg.cli.render import clean
from egg.core.evaluation import Accepted, Baseline, Evaluation, Interval, Measured, Rejected
from egg.core.events import (
    Advised,
    Answered,
    CompiledRecorded,
    ContractMade,
    Evaluated,
    Event,
    Exchanged,
    Inherited,
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
    ToolCalled,
)
from egg.core.plan import Plan
from egg.core.recording import Recording
from egg.core.step import Gain, Origin, Score, Step

if TYPE_CHECKING:
    from egg.engine.state import Ledger

LONGEST = 240
"""Characters of a quoted text in one line."""


def one_line(text: str, longest: int = LONGEST) -> str:
    """A text from a model, a task or a log as part of one line."""
    words = " ".join(clean(text).split())
    return words if len(words) <= longest else words[: longest - 3].rstrip() + "..."


def duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def times(interval: Interval) -> str:
    return f"{interval.median:.2f}x ({interval.low:.2f} to {interval.high:.2f})"


def predicted(step: Step) -> str:
    return f"{step.plan.prediction.speedup:.2f}x" if step.plan is not None else "-"


def measured(gain: Gain | None) -> str:
    """A gain over the base; one that no GPU measured says so."""
    if gain is None:
        return "-"
    return f"{gain.ratio:.2f}x" if gain.measured else f"{gain.ratio:.2f}x (estimated)"


def speed(score: Score) -> str:
    """How fast a kernel is, as far as that is known."""
    time = f"{score.milliseconds.median:.4g} ms"
    if score.speedup is None:
        return f"{time} (estimated; no GPU measured it)"
    return f"{time}, {times(score.speedup)} eager"


def brief_speed(score: Score) -> str:
    """The same where room is short."""
    if score.speedup is None:
        return f"{score.milliseconds.median:.4g} ms (estimated)"
    return f"{score.speedup.median:.2f}x eager"


def money(ledger: Ledger) -> str:
    """What the calls cost; calls without a price are never counted as free."""
    if not ledger.unpriced_calls:
        return f"${ledger.cost:.4f}"
    if ledger.unpriced_calls == ledger.calls:
        return "unpriced"
    return f"${ledger.cost:.4f} and {plural(ledger.unpriced_calls, 'unpriced call')}"


def against(evaluation: Evaluation) -> list[Baseline]:
    """The opponents a kernel was timed against, if a GPU timed it."""
    verdict = evaluation.verdict
    if isinstance(verdict, Accepted) and isinstance(verdict.performance, Measured):
        return list(verdict.performance.baselines)
    return []


def players(started: RunStarted) -> str:
    settings = started.settings
    names = ", ".join(dict.fromkeys(clean(choice.name) for choice in settings.all_models))
    return f"{clean(settings.team)} ({names})" if names else clean(settings.team)


def event_line(event: Event, last: Step | None = None) -> str | None:
    """An event in one line; ``None`` where the events around it hold the same.

    ``last`` is the step that closed before this event: the reason of a stage often repeats that step's.
    """
    from egg.report.run_story import stage_ending

    match event:
        case RunStarted(run=run, task=task, facts=facts):
            return f"run {clean(run)}: {clean(task.name)} for {clean(facts.gpu.name)}, team {players(event)}"
        case StageOpened(stage=stage):
            return f"stage {stage.value}"
        case Inherited(source=source, ended=ended):
            kept = "its best kernel is the first here" if source is not None else "it leaves no kernel"
            return f"the built-in team ended, {one_line(ended)}; {kept}"
        case StageSkipped(stage=stage, reason=reason):
            return f"stage {stage.value} skipped: {one_line(reason)}"
        case StageClosed(handoff=handoff):
            return f"stage {handoff.stage.value} ended: {one_line(stage_ending(handoff.reason, last))}"
        case Advised(step=step, skills=skills, failure=failure):
            names = ", ".join(clean(skill.name) for skill in skills)
            return f"step {step}: offered {names}" + (f" against {clean(failure)}" if failure else "")
        case Exchanged(request=request, completion=completion):
            used = completion.usage.total
            cost = f", ${completion.cost:.4f}" if completion.cost else ""
            tokens = f": {plural(used, 'token')}{cost}, {completion.seconds:.1f} s" if used else ""
            did = "asked for tools" if completion.calls else "answered"
            return f"{clean(request.purpose)} {did}{tokens}"
        case ToolCalled(purpose=purpose, call=call, seconds=seconds):
            return f"{clean(purpose)} called {clean(call.name)}: {seconds:.1f} s"
        case Answered(step=step, answer=Plan() as plan):
            expected = f"predicted {plan.prediction.speedup:.2f}x"
            return f"step {step}: {plan.category.value} ({expected}): {one_line(plan.change)}"
        case SentBack(role=role, step=step, objection=objection):
            return f"step {step}: sent back to {clean(role)}: {one_line(objection)}"
        case Proposed(step=step, origin=Origin.START, candidate=candidate):
            return f"step {step}: kernel {clean(candidate)} was given"
        case Proposed(step=step, origin=origin, candidate=candidate) if origin is not Origin.SWEEP:
            return f"step {step}: {origin.value} wrote kernel {clean(candidate)}"
        case Objected(step=step, candidate=candidate, objection=objection):
            return f"step {step}: kernel {clean(candidate)} not taken: {one_line(objection)}"
        case Evaluated(evaluation=evaluation) if evaluation.contenders:
            return side_by_side(evaluation)
        case Evaluated(evaluation=evaluation):
            return f"kernel {clean(evaluation.candidate_hash)}: {verdict(evaluation)}"
        case CompiledRecorded(recording=recording):
            return recorded_line(recording)
        case Swept(step=step, sweep=sweep):
            return f"step {step}: swept {len(sweep.points)} of {plural(sweep.size, 'point')}"
        case StepClosed(step=step):
            return f"step {step.number}: {step.decision.value}: {one_line(step.reason)}" + _outcome(step)
        case ContractMade(contract=contract):
            return f"structure agreed: {', '.join(clean(k.name) for k in contract.kernels) or 'no kernel'}"
        case RunClosed(verdict=closing, reason=reason):
            return f"ended, {clean(closing)}: {one_line(reason)}"
        case _:
            return None


def recorded_line(recording: Recording) -> str:
    """What was recorded of torch.compile, or why nothing was."""
    if recording.graph is None:
        return f"torch.compile was not recorded: {one_line(recording.reason)}"
    total = recording.milliseconds
    times = f", {total:.3g} ms on the GPU" if total is not None else ""
    return f"torch.compile recorded: {plural(len(recording.graph.launches), 'kernel')}{times}"


def side_by_side(evaluation: Evaluation) -> str:
    """The fastest of the files that were timed beside a kernel; whether it is right is not known yet."""
    beside = (
        f"{plural(len(evaluation.contenders), 'file')} timed beside kernel {clean(evaluation.candidate_hash)}"
    )
    gains = [rival.gain.median for rival in evaluation.contenders if rival.gain is not None]
    return f"{beside}: the fastest is {max(gains):.3f}x" if gains else f"{beside}: none of them ran"


def verdict(evaluation: Evaluation) -> str:
    found = evaluation.verdict
    if isinstance(found, Rejected):
        return f"rejected at {found.refusal.gate.value}: {one_line(found.refusal.evidence)}"
    if isinstance(found.performance, Measured):
        eager = next((b for b in found.performance.baselines if b.name == "eager"), None)
        over = f", {eager.speedup.median:.2f}x eager" if eager is not None else ""
        return f"accepted, {found.performance.milliseconds.median:.4g} ms{over}"
    return "accepted; no GPU measured it"


def _outcome(step: Step) -> str:
    if step.plan is None or step.gain is None:
        return ""
    return f" (predicted {predicted(step)}, came out at {measured(step.gain)})"


def command(verb: str, folder: Path, more: str = "") -> str:
    """A command to copy and run."""
    return f"egg {verb} {shlex.quote(clean(str(folder)))}{' ' + more if more else ''}"
