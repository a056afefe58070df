"""Pools in this process that judge by a script."""

from __future__ import annotations

import time
from collections.abc import Callable

from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job


class ScriptedPool:
    """Answers everything at once; the files it is given take half the reference's time.

    ``loses`` is asked of every job, with the number of times that it came before: those are never answered.
    """

    def __init__(self, loses: Callable[[Job, int], bool] = lambda job, before: False) -> None:
        self._judge = ScriptedJudge(lambda _: Act(0.5))
        self._loses = loses
        self._ready: list[tuple[str, Answer]] = []
        self.submitted: list[str] = []

    def submit(self, ticket: str, job: Job) -> None:
        before = self.submitted.count(job.id)
        self.submitted.append(job.id)
        if not self._loses(job, before):
            ((name, evaluation),) = self._judge.judge([job])
            self._ready.append((ticket, Answer(name, evaluation)))

    def answers(self, timeout: float) -> list[tuple[str, Answer]]:
        given, self._ready = self._ready, []
        if not given:
            time.sleep(timeout)
        return given

    def gpu(self) -> str | None:
        return ScriptedJudge.GPU

    def close(self) -> None:
        self.submitted.append("closed")
