"""The log as the loop sees it: a run is a deterministic program, and its effects are read back.

The loop always starts at the beginning. Whatever the world answered before is in the log and
is not asked again; whatever the loop decided before is decided again and must come out the
same. Where the record ends, the world is asked and the answers are appended. So a killed run
resumes by running, a finished one replays by running from the log alone, and no position in
the program is ever stored.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from egg.core.codec import to_json
from egg.core.conversation import Completion, Request, ToolCall
from egg.core.errors import UsageError
from egg.core.evaluation import Evaluation
from egg.core.events import (
    Advised,
    Answered,
    CompiledRecorded,
    Evaluated,
    Event,
    Exchanged,
    Inherited,
    Proposed,
    RunStarted,
    ToolCalled,
)
from egg.core.plan import Answer, Exhausted
from egg.core.recording import Recording
from egg.core.roles import Skill
from egg.engine.state import RunState, apply, check_comparable
from egg.engine.waiting import EndOfLog
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import RecordRequest

Observer = Callable[[Event, RunState, bool], None]
"""Hears every event with the state after it, and whether it is new (or read back)."""


class Judge(Protocol):
    """Evaluates kernels: each answer as it comes, in any order."""

    def judge(self, jobs: Sequence[Job]) -> Iterable[tuple[str, Evaluation]]: ...


@runtime_checkable
class Recorder(Protocol):
    """A judge that can record what torch.compile generates; ``None`` where its device cannot."""

    def record(self, request: RecordRequest) -> Recording | None: ...


class OverBudget(Exception):
    """A call that could pass a cap was not made."""


class Diverged(UsageError):
    """The loop decided otherwise than the log says."""

    def __init__(self, number: int, recorded: Event | None, now: str) -> None:
        before = f"the log has {recorded.kind}" if recorded is not None else "the log ends"
        super().__init__(
            f"event {number}: {before}, the engine now comes to {now}",
            "the log was made by another version of egg, or edited: use the version it names, or start anew",
        )


class Journal:
    """Recorded events first, then new ones through ``append`` (``None``: nothing may be added)."""

    def __init__(
        self,
        recorded: Sequence[Event],
        append: Callable[[Event], Event] | None,
        observe: Observer = lambda event, state, new: None,
    ) -> None:
        started = recorded[0]
        if not isinstance(started, RunStarted):
            raise ValueError("a log begins with the start of its run")
        self._recorded = recorded
        self._append = append
        self._observe = observe
        self._next = 1
        self._loose: deque[Exchanged | ToolCalled] = deque()
        self.state = RunState(started)
        observe(started, self.state, False)
        if isinstance(self._coming, Inherited):
            self._read()

    @property
    def _coming(self) -> Event | None:
        return self._recorded[self._next] if self._next < len(self._recorded) else None

    @property
    def at_end(self) -> bool:
        """Whether every recorded event was read back."""
        return self._coming is None and not self._loose

    def decide(self, event: Event) -> None:
        """Record a decision, or find it recorded already."""
        recorded = self._coming
        if recorded is None:
            self._write(event)
        elif to_json(recorded) == to_json(event):
            self._read()
        else:
            raise Diverged(self._next + 1, recorded, f"{event.kind} {_difference(recorded, event)}")

    def answer(self, role: str, step: int, ask: Callable[[], Answer]) -> Answer:
        """A role's answer, asking it only if the log does not have one.

        A log cut off in the middle of a question holds calls of a model and of tools without the answer
        they led to; they are kept, and :meth:`exchange` and :meth:`use` return them before anything is
        called.
        """
        while isinstance(self._coming, Exchanged | ToolCalled):
            self._loose.append(self._coming)
            self._next += 1
        recorded = self._coming
        if isinstance(recorded, Answered) and (recorded.role, recorded.step) == (role, step):
            while self._loose:
                self._take(self._loose.popleft(), new=False)
            self._read()
            return recorded.answer
        if recorded is not None:
            raise Diverged(self._next + 1, recorded, f"a question to {role} in step {step}")
        if self._append is None:
            while self._loose:
                self._take(self._loose.popleft(), new=False)
            raise EndOfLog(f"the log ends before {role} answered in step {step}")
        started = time.monotonic()
        try:
            answer = ask()
        except OverBudget as reason:
            answer = Exhausted(str(reason))
        while self._loose:
            self._take(self._loose.popleft(), new=False)
        written = self._write(Answered(role, step, answer, round(time.monotonic() - started, 3)))
        assert isinstance(written, Answered)
        return written.answer

    def advice(
        self, step: int, failure: str, ask: Callable[[], tuple[Skill, ...]] | None
    ) -> tuple[Skill, ...]:
        """The skills on offer: those that the log has, else what ``ask`` says, where there is anything new.

        A log that goes on without any was written without an offer, and is read without one.
        """
        recorded = self._coming
        if isinstance(recorded, Advised) and (recorded.step, recorded.failure) == (step, failure):
            self._read()
            return recorded.skills
        if recorded is not None or self._append is None or ask is None:
            return ()
        offered = ask()
        if not offered:
            return ()
        written = self._write(Advised(step, failure, offered))
        assert isinstance(written, Advised)
        return written.skills

    def record(self, ask: Callable[[], Recording | None]) -> None:
        """A recording of torch.compile: the one that the log has here, else what ``ask`` finds.

        A log that goes on without one was written without one, and is read without one.
        """
        recorded = self._coming
        if isinstance(recorded, CompiledRecorded):
            self._read()
        elif recorded is None and self._append is not None and (found := ask()) is not None:
            self._write(CompiledRecorded(found))

    def exchange(self, request: Request, call: Callable[[], Completion]) -> Completion:
        """One model call within a question: a recorded one first, then a live one."""
        while self._loose:
            exchanged = self._loose.popleft()
            self._take(exchanged, new=False)
            if isinstance(exchanged, Exchanged) and exchanged.request.purpose == request.purpose:
                return exchanged.completion
        written = self._write(Exchanged(request, call()))
        assert isinstance(written, Exchanged)
        return written.completion

    def use(self, purpose: str, call: ToolCall, run: Callable[[], str]) -> str:
        """The result of a tool that a model called within a question: a recorded one first, then a new one.

        Of a log that was cut off, the next event is either the result of this very call or a later one's
        model call, which then belongs to :meth:`exchange`.
        """
        known = self._loose[0] if self._loose else None
        if isinstance(known, ToolCalled) and (known.purpose, known.call) == (purpose, call):
            self._take(self._loose.popleft(), new=False)
            return known.result
        started = time.monotonic()
        result = run()
        written = self._write(ToolCalled(purpose, call, result, round(time.monotonic() - started, 3)))
        assert isinstance(written, ToolCalled)
        return written.result

    def evaluate(self, jobs: Sequence[Job], judge: Judge) -> dict[str, Evaluation]:
        """The verdicts on ``jobs``, judging only those that the log does not know, in whatever order."""
        wanted = {job.id: job for job in jobs}
        while isinstance(event := self._coming, Evaluated) and event.job in wanted:
            self._read()
        missing = [job for job in jobs if job.id not in self.state.evaluations]
        if missing:
            if self._coming is not None:
                raise Diverged(self._next + 1, self._coming, f"an evaluation of {missing[0].id}")
            if self._append is None:
                raise EndOfLog(f"the log ends before {missing[0].id} was judged")
            for job, evaluation in judge.judge(missing):
                _check_complete(wanted[job], evaluation)
                check_comparable(self.state, evaluation)
                self._write(Evaluated(job, evaluation))
        for name, job in wanted.items():
            _check_identity(job, self.state.evaluations[name])
        return {name: self.state.evaluations[name] for name in wanted}

    def _read(self) -> None:
        event = self._recorded[self._next]
        self._next += 1
        self._take(event, new=False)

    def _write(self, event: Event) -> Event:
        if self._append is None:
            raise EndOfLog(f"the log ends before {event.kind}")
        if (
            isinstance(event, Proposed)
            and self.state.sources.get(event.candidate, event.source) != event.source
        ):
            raise _another_text(event.candidate)
        written = self._append(event)
        self._take(written, new=True)
        return written

    def _take(self, event: Event, *, new: bool) -> None:
        self.state = apply(self.state, event)
        self._observe(event, self.state, new)


def _check_identity(job: Job, evaluation: Evaluation) -> None:
    """A verdict that the log has under the name of a job must be on the file that the job asks about."""
    if evaluation.candidate_sha256 not in ("", job.question.candidate.sha256):
        raise _another_text(evaluation.candidate_hash)


def _another_text(name: str) -> UsageError:
    return UsageError(
        f"two kernel files of this run have the name {name}: their hashes begin with the same digits",
        "one of them was made so on purpose: do not use either, and begin another run",
    )


def _check_complete(job: Job, evaluation: Evaluation) -> None:
    """A side-by-side timing names its contenders: without them it would pass for a verdict on the base."""
    asked = [file.hash for file in job.question.contenders]
    if asked != [found.candidate_hash for found in evaluation.contenders]:
        raise UsageError(
            f"the answer to {job.id} says nothing of the files to be timed beside it",
            "the judge is of an older version of egg: update it there; nothing was recorded",
        )


def _difference(recorded: Event, now: Event) -> str:
    """The first field in which two events of one kind differ, for the message."""
    if recorded.kind != now.kind:
        return ""
    old, new = to_json(recorded), to_json(now)
    name = next((key for key in new if old.get(key) != new[key]), "")
    return f"with another {name}" if name else ""
