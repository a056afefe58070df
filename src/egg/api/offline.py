"""The two ways a run goes on from outside: replies brought in, evaluations taken away and back.

Each verb looks before it touches: what a run waits for is worked out from its log without
writing, so a verb in the wrong order changes nothing and says which one is due.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egg.api.carried import CarriedJudge, Results
from egg.api.clients import OutsideClient
from egg.api.optimizing import OFFLINE, carry_on
from egg.api.runs import Progress, look
from egg.api.teams import ANSWERED_OUTSIDE, ASKING
from egg.api.watching import Watcher
from egg.core.conversation import Completion, Request
from egg.core.errors import UsageError
from egg.engine.waiting import WaitingForEvaluations, WaitingForReply, WaitingForTeam
from egg.evaluator.judge.pool import Job
from egg.llm.client import OnText, ignore_text

REPLY, EVALUATIONS, MODEL, TEAM = "reply", "evaluations", "model", "team"


def waits_for(progress: Progress) -> str | None:
    """``reply`` (from outside), ``evaluations``, ``model`` (of an endpoint), ``team`` (the built-in one);
    ``None`` after the end."""
    if isinstance(progress.waiting, WaitingForReply):
        return MODEL if progress.state.started.settings.team in ASKING else REPLY
    if isinstance(progress.waiting, WaitingForTeam):
        return TEAM
    return EVALUATIONS if isinstance(progress.waiting, WaitingForEvaluations) else None


def open_question(progress: Progress) -> Request | None:
    """The question that a reply from outside may answer; ``None`` where there is none."""
    outside = progress.state.started.settings.team in ANSWERED_OUTSIDE
    return progress.waiting.request if outside and isinstance(progress.waiting, WaitingForReply) else None


def waiting_words(progress: Progress) -> str:
    """What a run waits for, in words."""
    settings = progress.state.started.settings
    match progress.waiting:
        case WaitingForTeam():
            return "it was stopped before the built-in team answered"
        case WaitingForReply(request=request) if settings.team in ASKING:
            model = settings.model.name if settings.model is not None else "its model"
            return f"it was stopped before {model} answered as {request.purpose}"
        case WaitingForReply(request=request):
            return f"it waits for a reply as {request.purpose}"
        case WaitingForEvaluations(jobs=jobs):
            count = f"{len(jobs)} evaluation{'s' if len(jobs) != 1 else ''}"
            if settings.device == OFFLINE:
                return f"it waits for {count}"
            return f"it was stopped before {count} on {settings.device}"
        case _:
            return "it has ended"


def ways_on(progress: Progress, run: Path) -> tuple[str, ...]:
    """The commands that take a run on, in order; none after the end."""
    name = shlex.quote(str(run))
    match waits_for(progress), progress.state.started.settings.device:
        case "reply", _:
            return f"egg next {name}", f"egg reply {name} --file REPLY"
        case "evaluations", "offline":
            jobs, results = "JOBS.jsonl", "RESULTS.jsonl"
            return (
                f"egg pending {name} --out {jobs}",
                f"egg eval-batch {jobs} --out {results}",
                f"egg results {name} {results}",
            )
        case None, _:
            return ()
        case _:
            return (f"egg resume {name}",)


def _instead(progress: Progress, run: Path) -> str:
    """For errors: what is due in the place of what was tried."""
    ways = ways_on(progress, run)
    return waiting_words(progress) + (f": {', then '.join(f'`{way}`' for way in ways)}" if ways else "")


class OneReply(OutsideClient):
    """One reply for one question: if the run has gone on meanwhile, it answers no other."""

    def __init__(self, question: Request, text: str) -> None:
        super().__init__([text])
        self._question = question

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        if self.unused and request != self._question:
            raise UsageError(
                f"the question was answered already; the run now asks {request.purpose}",
                "read the open question with `egg next RUN`",
            )
        return super().complete(request, on_text)


def reply(folder: Path, text: str, watcher: Watcher, environ: Mapping[str, str]) -> Progress:
    """Answer a run's open question and go on to the next stop."""
    seen = look(folder)
    if seen.state.started.settings.team not in ANSWERED_OUTSIDE:
        who = "a model answers" if seen.state.started.settings.team in ASKING else "the built-in team answers"
        raise UsageError(f"{who} in this run", f"go on with `egg resume {folder}`")
    if not isinstance(seen.waiting, WaitingForReply):
        raise UsageError("the run waits for no reply", _instead(seen, folder))
    outside = OneReply(seen.waiting.request, text)
    progress = carry_on(folder, seen.state, watcher, environ, outside=outside)
    if outside.unused:
        raise UsageError("the reply was not taken", _instead(progress, folder))
    return progress


def open_jobs(progress: Progress) -> tuple[Job, ...]:
    """The jobs another machine is to judge; none where this machine judges."""
    offline = progress.state.started.settings.device == OFFLINE
    return progress.waiting.jobs if offline and isinstance(progress.waiting, WaitingForEvaluations) else ()


def write_jobs(path: Path, jobs: Iterable[Job]) -> int:
    """All jobs in one file, each once, there whole or not at all; returns how many."""
    lines: dict[str, str] = {}
    for job in jobs:
        line = job.to_line()
        if lines.setdefault(job.id, line) != line:
            raise UsageError(
                f"two runs ask different questions under one name: {job.id}",
                "one folder is a changed copy of the other: leave one out",
            )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(f"{line}\n" for line in lines.values()), encoding="utf-8")
        temporary.replace(path)
    except OSError as reason:
        raise UsageError(f"cannot write {path}: {reason.strerror}", "choose another --out") from None
    return len(lines)


@dataclass(frozen=True)
class Fed:
    """What results did for one run; ``taken`` are the jobs whose verdicts went in."""

    progress: Progress
    taken: frozenset[str] = frozenset()


def feed(folder: Path, results: Results, watcher: Watcher, environ: Mapping[str, str]) -> Fed:
    """Bring a run the verdicts it waits for and go on to the next stop; a run without any is left alone."""
    seen = look(folder)
    if not any(job.id in results.verdicts for job in open_jobs(seen)):
        return Fed(seen)
    judge = CarriedJudge(results, seen.state.started.facts)
    progress = carry_on(folder, seen.state, watcher, environ, judge=judge)
    return Fed(progress, frozenset(judge.used))


def known(job: str, runs: Sequence[Progress]) -> bool:
    """Whether a run has this job's verdict already."""
    return any(job in progress.state.evaluations for progress in runs)
