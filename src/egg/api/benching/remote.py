"""Kernels that are judged elsewhere: through the worker's channel to the parent, from there to a pool.

A worker knows nothing of the pool. Its judge sends jobs up and waits for the answers; the parent gives each
a ticket, hands it to the pool and sends the answer down to the worker that asked. So a run takes the same way
wherever its kernels are judged, and a pool is used by one process and one thread.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from egg.api.benching.channel import Replied, Submitted, WorkerChannel
from egg.core.errors import EggError, MachineError
from egg.core.evaluation import Evaluation
from egg.engine.pools import JudgePool
from egg.evaluator.judge.oracle import ANSWER_SECONDS
from egg.evaluator.judge.pool import RETRIES, Answer, Job

LOST_SECONDS = 2 * (1 + RETRIES) * ANSWER_SECONDS
"""Longer than any job can take: a judge gives up before, tries again, and so does a pool whose machine
died."""


# -- in a worker -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteJudges:
    """A worker sends its kernels up to the parent, which hands them to a pool."""

    def make(self, channel: WorkerChannel) -> RemoteJudge:
        return RemoteJudge(channel)


class RemoteJudge:
    """Judges through the parent. A job without a verdict raises, as with a local judge, but after all
    answers: the others are worth having, and a channel that is not read fills up."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        error: EggError | None = None
        for answer in self._channel.ask(jobs):
            if answer.evaluation is not None:
                yield answer.job, answer.evaluation
            error = error or answer.error
        if error is not None:
            raise error

    def close(self) -> None:
        pass


# -- in the parent ---------------------------------------------------------------------------------------

Reply = Callable[[Replied], None]
"""Sends an answer down to the worker that asked."""


@dataclass(frozen=True)
class _Open:
    """A job that the pool has not answered yet."""

    asker: int
    reply: Reply
    batch: int
    place: int
    job: Job
    tries: int = 1

    def answer(self, answer: Answer) -> None:
        self.reply(Replied(self.batch, self.place, replace(answer, job=self.job.id)))


class Relay:
    """Tickets for jobs on their way to a pool, and the answers back to who asked.

    A pool should lose nothing; one that does must not hang a bench. It begins jobs in the order in which they
    came, so the oldest open one is being judged, however long the queue: where that has no answer for
    ``patience`` seconds (:data:`LOST_SECONDS`) since it became the oldest, it is lost. It is submitted once
    more, and then answered with a ``MachineError``. Answers to tickets that no worker waits for are dropped.
    """

    def __init__(
        self, pool: JudgePool, patience: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pool = pool
        self._patience = LOST_SECONDS if patience is None else patience
        self._clock = clock
        self._open: dict[str, _Open] = {}
        mine = uuid.uuid4().hex[:12]  # a pool may serve another bench after this one
        self._names = (f"{mine}-{number}" for number in itertools.count(1))
        self._oldest: tuple[str, float] | None = None

    def take(self, asker: int, asked: Submitted, reply: Reply) -> None:
        """Hand a worker's question to the pool; whatever it asked before, it waits for no longer."""
        self.forget(asker)
        for place, job in enumerate(asked.jobs):
            self._submit(_Open(asker, reply, asked.batch, place, job))

    def forget(self, asker: int) -> None:
        """Drop this worker's open jobs: it waits for no answer any more."""
        self._open = {ticket: found for ticket, found in self._open.items() if found.asker != asker}

    def pass_on(self, timeout: float) -> None:
        """Send down what the pool has answered, waiting for the first answer up to ``timeout`` seconds."""
        if not self._open:
            return
        for ticket, answer in self._pool.answers(timeout):
            found = self._open.pop(ticket, None)
            if found is not None:
                found.answer(answer)
        self._look_for_lost()

    @property
    def waits(self) -> bool:
        return bool(self._open)

    def _submit(self, found: _Open) -> None:
        ticket = next(self._names)
        self._open[ticket] = found
        self._pool.submit(ticket, found.job)

    def _look_for_lost(self) -> None:
        first, now = next(iter(self._open), None), self._clock()
        if first is None or self._oldest is None or self._oldest[0] != first:
            self._oldest = (first, now) if first is not None else None
            return
        if now - self._oldest[1] < self._patience:
            return
        lost = self._open.pop(first)
        if lost.tries == 1:
            self._submit(replace(lost, tries=2))
        else:
            hint = "look after the pool's machines, then run again with --retry"
            lost.answer(Answer(lost.job.id, error=MachineError("the pool has lost a kernel twice", hint)))
