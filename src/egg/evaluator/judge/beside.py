"""The interpreter's verdict, made beside a GPU's.

It takes about as long as the gates before those that measure, so it is asked for at the start. A GPU's
refusal does not wait for it.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from egg.core.errors import EggError
from egg.core.evaluation import Evaluation
from egg.evaluator.judge import interpreted
from egg.evaluator.judge.question import Question

INTERPRETER_SECONDS = 90.0
"""For the whole verdict without a GPU."""


class Judging(Protocol):
    """What of an oracle is used here."""

    def judge(self, question: Question, *, timeout: float) -> Evaluation: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class Beside:
    """An oracle without a GPU, in a thread of its own: its process lives as long as that thread."""

    def __init__(self, oracle: Judging) -> None:
        self._oracle = oracle
        self._thread = ThreadPoolExecutor(1, "interpreter")
        self._answer: Future[Evaluation] | None = None
        self._interrupted = False

    def begin(self, question: Question) -> None:
        self._interrupted = False
        self._answer = self._thread.submit(self._oracle.judge, question, timeout=INTERPRETER_SECONDS)

    def confirmed(self, measured: Evaluation) -> Evaluation:
        """``measured`` with what the interpreter adds; an interrupt is raised as the oracle's error."""
        assert self._answer is not None
        started = time.monotonic()
        try:
            found = self._answer.result()
        except EggError as error:
            if self._interrupted:
                raise
            return interpreted.not_interpreted(measured, error.message, time.monotonic() - started)
        return interpreted.joined(measured, found, time.monotonic() - started)

    def interrupt(self) -> None:
        """End the verdict in progress, from another thread."""
        self._interrupted = True
        self._oracle.interrupt()

    def abandon(self) -> None:
        """Leave a verdict that no one waits for; the next one begins in a new process."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            self.interrupt()
            answer.exception()

    def close(self) -> None:
        self.abandon()
        self._oracle.close()
        self._thread.shutdown()
