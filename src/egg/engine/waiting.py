"""Why a run stands still: it waits for a reply or a verdict from outside this process. Not an error."""

from __future__ import annotations

from egg.core.conversation import Request
from egg.evaluator.judge.pool import Job


class Waiting(Exception):
    """The run can go no further on its own."""


class WaitingForReply(Waiting):
    """A question is open; ``egg reply`` answers it."""

    def __init__(self, request: Request) -> None:
        super().__init__(f"waiting for a reply as {request.purpose}")
        self.request = request


class WaitingForEvaluations(Waiting):
    """Kernels are to be judged on another machine; ``egg results`` brings their verdicts."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        super().__init__(f"waiting for {len(jobs)} evaluation{'s' if len(jobs) != 1 else ''}")
        self.jobs = jobs


class WaitingForTeam(Waiting):
    """The built-in team is to answer; a run that goes on asks it."""

    def __init__(self) -> None:
        super().__init__("stopped before the built-in team answered")


class EndOfLog(Waiting):
    """Everything recorded was read back, and nothing may be asked."""
