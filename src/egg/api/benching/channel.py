"""A worker's channel to its parent: news and jobs go up, tasks and answers come down.

Both ends are this program's own processes, so what travels is pickled. A worker does one thing at a time:
it reads the channel only where it has nothing to do but wait, for its next task or for answers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from egg.api.benching.news import News
from egg.core.source import Task
from egg.evaluator.judge.pool import Answer, Job

# -- up ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The process has started, and its judge is at hand."""


@dataclass(frozen=True)
class Reported:
    news: News


@dataclass(frozen=True)
class Submitted:
    """Kernels to be judged elsewhere. ``batch`` tells the answers of one question from those of another."""

    batch: int
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Done:
    """What became of the task."""

    result: Any


# -- down ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replied:
    """The answer to one job of a batch, by its place there."""

    batch: int
    place: int
    answer: Answer


class WorkerChannel:
    """The worker's end."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._turn = threading.Lock()
        self._batch = 0

    def tell(self, news: News) -> None:
        self._send(Reported(news))

    def ask(self, jobs: Sequence[Job]) -> Iterator[Answer]:
        """Every job's answer as it comes. Where the last question was left early, its answers are dropped."""
        self._batch += 1
        batch = self._batch
        self._send(Submitted(batch, tuple(jobs)))
        open_places = set(range(len(jobs)))
        while open_places:
            message = self._receive()
            if isinstance(message, Replied) and message.batch == batch and message.place in open_places:
                open_places.discard(message.place)
                yield message.answer

    def tasks(self) -> Iterator[Task]:
        """The tasks to be done, one after the other; the end is the parent's to say."""
        self._send(Ready())
        while (message := self._receive()) is not None:
            if isinstance(message, Task):
                yield message

    def done(self, result: Any) -> None:
        self._send(Done(result))

    def _send(self, message: Ready | Reported | Submitted | Done) -> None:
        with self._turn:
            try:
                self._channel.send(message)
            except (BrokenPipeError, ConnectionResetError):
                raise SystemExit(1) from None  # the parent is gone

    def _receive(self) -> Any:
        try:
            return self._channel.recv()
        except (EOFError, ConnectionResetError):
            raise SystemExit(1) from None
