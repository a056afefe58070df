"""A run's log as stages and their steps; each step with its messages, files, refusals and decision.

The log is in order of time, and so is the story. What belongs to a step is known by its number, except the
calls of a model: they belong to the step whose answer follows them. Calls that no answer follows are those
of a question that is still open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from egg.core.conversation import Completion, Request, Speaker
from egg.core.evaluation import Evaluation, Rejected
from egg.core.events import (
    Advised,
    Answered,
    Evaluated,
    Event,
    Exchanged,
    Objected,
    Proposed,
    SentBack,
    StageClosed,
    StageOpened,
    StageSkipped,
    StepClosed,
)
from egg.core.plan import Diagnosis, Plan
from egg.core.roles import Skill
from egg.core.stage import Stage
from egg.core.step import Attempt, Handoff, Origin, Score, Step
from egg.engine.scoring import gain, score
from egg.engine.state import RunState
from egg.memory.phrases import missed, prediction_beside_outcome, sweep
from egg.report.difference import Difference, difference

LONGEST_TEXT = 200_000
"""Characters of one message that a page shows."""


@dataclass(frozen=True)
class MessageStory:
    """One message to a model. A text that an earlier call sent is given by that call's number."""

    speaker: Speaker
    text: str
    same_as: int | None = None


@dataclass(frozen=True)
class Call:
    number: int
    request: Request
    completion: Completion
    messages: tuple[MessageStory, ...]
    reply: str


@dataclass(frozen=True)
class AttemptStory:
    """One file of a step: the change against the file before it, and its verdict."""

    attempt: Attempt
    change: Difference | None


@dataclass(frozen=True)
class StepStory:
    step: Step
    outcome: str
    """Prediction beside measurement, in words; empty where nothing was planned."""
    missed: bool
    score: Score | None
    """Of the file that the step ended with."""
    base_step: int | None
    """Which step made the file it began with."""
    change: Difference | None
    """From that file to the one it ended with."""
    attempts: tuple[AttemptStory, ...]
    swept: str
    calls: tuple[Call, ...] = ()
    skills: tuple[Skill, ...] = ()
    objections: tuple[str, ...] = ()
    """Why answers were sent back."""


@dataclass(frozen=True)
class OpenStep:
    """The step that a run is at: what was planned, and the files so far."""

    number: int
    plan: Plan | None
    attempts: tuple[AttemptStory, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class StageStory:
    stage: Stage
    steps: tuple[StepStory, ...]
    ended: str
    """Why it ended, or was left out; empty while it is open."""
    skipped: bool = False
    ratio: float | None = None
    """How much faster the best kernel became in it; ``None`` where there was none before."""
    best: Score | None = None


@dataclass(frozen=True)
class Story:
    stages: tuple[StageStory, ...]
    scores: Mapping[str, Score]
    """How fast every accepted kernel was when it was first judged, by hash."""
    open: OpenStep | None
    """What is not closed yet; ``None`` where every step is."""

    @property
    def steps(self) -> tuple[StepStory, ...]:
        return tuple(step for stage in self.stages for step in stage.steps)


def stage_ending(reason: str, last: Step | None) -> str:
    """Why a stage ended, without the sentence of its last step: that stands beside it already."""
    return reason.removesuffix(f": {last.reason}") if last is not None and last.reason else reason


def story_of(events: Iterable[Event], state: RunState) -> Story:
    """Stages and steps of a run whose state is ``state``."""
    reader = _StoryReader(state)
    for event in events:
        reader.take(event)
    return reader.story()


@dataclass
class _StoryReader:
    """Takes events one by one, and assigns each to its step and stage."""

    state: RunState
    stages: list[StageStory] = field(default_factory=list)
    scores: dict[str, Score] = field(default_factory=dict)
    made_in: dict[str, int] = field(default_factory=dict)
    steps: list[StepStory] = field(default_factory=list)
    stage: Stage | None = None
    before: Score | None = None
    loose: list[Call] = field(default_factory=list)
    calls: dict[int, list[Call]] = field(default_factory=dict)
    skills: dict[int, list[Skill]] = field(default_factory=dict)
    objections: dict[int, list[str]] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    number: int = 0
    plan: Plan | None = None
    diagnosis: Diagnosis | None = None
    files: dict[str, Attempt] = field(default_factory=dict)
    """Of the step that is open, by hash."""

    def take(self, event: Event) -> None:
        match event:
            case StageOpened(stage=stage):
                self._leave("", None)
                self.stage = stage
            case StageSkipped(stage=stage, reason=reason):
                self._leave("", None)
                self.stages.append(StageStory(stage, (), reason, skipped=True))
            case StageClosed(handoff=handoff):
                self._leave(handoff.reason, handoff)
            case Exchanged():
                self.loose.append(self._call(event))
            case Answered(step=step, answer=answer):
                self.calls.setdefault(step, []).extend(self.loose)
                self.loose.clear()
                self.plan = answer if isinstance(answer, Plan) else self.plan
                self.diagnosis = answer if isinstance(answer, Diagnosis) else self.diagnosis
            case Advised(step=step, skills=skills):
                self.skills.setdefault(step, []).extend(skills)
            case SentBack(step=step, objection=objection):
                self.objections.setdefault(step, []).append(objection)
            case Proposed(candidate=candidate, step=step, origin=origin):
                self.made_in.setdefault(candidate, step)
                followed = self.diagnosis if origin is Origin.REPAIR else None
                self.files[candidate] = Attempt(candidate, origin, followed)
            case Objected(candidate=candidate, objection=objection) if candidate in self.files:
                self.files[candidate] = replace(self.files[candidate], objection=objection)
            case Evaluated(evaluation=evaluation):
                self._judged(evaluation)
            case StepClosed(step=step):
                self.steps.append(self._step(step))
                self.plan, self.diagnosis, self.files = None, None, {}
            case _:
                pass

    def story(self) -> Story:
        self._leave("", None)
        return Story(tuple(self.stages), self.scores, self._open())

    def _open(self) -> OpenStep | None:
        """Sweeps are left out: the event that closes the step holds their result."""
        closed = {step.number for step in self.state.steps}
        asked = [call for step, calls in self.calls.items() if step not in closed for call in calls]
        calls = (*asked, *self.loose)
        attempts = self._attempts(a for a in self.files.values() if a.origin is not Origin.SWEEP)
        if not (calls or attempts or self.plan):
            return None
        return OpenStep(max(closed, default=0) + 1, self.plan, attempts, calls)

    def _leave(self, reason: str, handoff: Handoff | None) -> None:
        if self.stage is None:
            return
        best = handoff.best_score if handoff is not None else None
        ratio = gain(best, self.before).ratio if best is not None and self.before is not None else None
        ended = stage_ending(reason, self.steps[-1].step if self.steps else None)
        self.stages.append(StageStory(self.stage, tuple(self.steps), ended, ratio=ratio, best=best))
        self.steps, self.stage, self.before = [], None, best or self.before

    def _judged(self, evaluation: Evaluation) -> None:
        if evaluation.contenders:
            return
        file = self.files.get(evaluation.candidate_hash)
        if file is not None and isinstance(evaluation.verdict, Rejected):
            self.files[file.candidate] = replace(file, refusal=evaluation.verdict.refusal)
        if not evaluation.checked or evaluation.candidate_hash in self.scores:
            return
        found = score(evaluation, self.state.gpu)
        if found is not None:
            self.scores[evaluation.candidate_hash] = found

    def _call(self, event: Exchanged) -> Call:
        self.number += 1
        messages = []
        for message in event.request.messages:
            first = self.heard.setdefault(message.text, self.number)
            repeated = first != self.number and len(message.text) > 200
            messages.append(
                MessageStory(
                    message.speaker, "" if repeated else _cut(message.text), first if repeated else None
                )
            )
        return Call(
            self.number, event.request, event.completion, tuple(messages), _cut(_said(event.completion))
        )

    def _step(self, step: Step) -> StepStory:
        last = step.candidate or (step.attempts[-1].candidate if step.attempts else None)
        return StepStory(
            step=step,
            outcome=prediction_beside_outcome(step),
            missed=missed(step),
            score=self.scores.get(step.candidate) if step.candidate else None,
            base_step=self.made_in.get(step.base) if step.base else None,
            change=self._change(step.base, last),
            attempts=self._attempts(step.attempts),
            swept=sweep(step.sweep) if step.sweep is not None else "",
            calls=tuple(self.calls.get(step.number, ())),
            skills=tuple(self.skills.get(step.number, ())),
            objections=tuple(self.objections.get(step.number, ())),
        )

    def _attempts(self, attempts: Iterable[Attempt]) -> tuple[AttemptStory, ...]:
        """Each file against the one before it; the change of the first belongs to the step."""
        stories, before = [], None
        for attempt in attempts:
            stories.append(AttemptStory(attempt, self._change(before, attempt.candidate)))
            before = attempt.candidate
        return tuple(stories)

    def _change(self, before: str | None, after: str | None) -> Difference | None:
        sources = self.state.sources
        old, new = (sources.get(name) if name is not None else None for name in (before, after))
        return difference(old, new) if old is not None and new is not None and before != after else None


def _said(completion: Completion) -> str:
    """The text of a reply, and the tools it calls."""
    calls = (f"calls {call.name} {call.arguments}" for call in completion.calls)
    return "\n".join(part for part in (completion.text, *calls) if part)


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[{len(text) - LONGEST_TEXT:,} more characters are in the log]"
