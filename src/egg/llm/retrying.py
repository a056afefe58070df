"""One retry policy for every endpoint: wait longer each time, never longer than is sensible.

The SDKs' own retries are switched off. They know nothing of streams that break in the middle,
they cannot tell the live view why nothing moves, and two policies on top of each other multiply.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from egg.core.conversation import Usage
from egg.llm.client import ModelError

Answer = TypeVar("Answer")
OnWait = Callable[[float, str], None]
"""Told how many seconds are waited, and why, before each wait."""

RESUME = "the run is kept: `egg resume RUN` goes on from here once the endpoint answers again"


class Transient(Exception):
    """A failure that may not come again. ``spent`` is what the endpoint probably billed for it."""

    def __init__(self, reason: str, retry_after: float | None = None, spent: Usage | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        """Seconds the endpoint asked us to wait, where it did."""
        self.spent = spent or Usage()


@dataclass(frozen=True)
class Patience:
    """How often and how long."""

    tries: int = 6
    first_wait: float = 1.0
    longest_wait: float = 60.0
    """Of the waits chosen here; an endpoint may ask for more."""
    total_wait: float = 300.0
    """Seconds of waiting for one request, all waits together."""

    def backoff(self, failures: int, random: Random) -> float:
        """Twice as long after each failure, less up to half: callers that failed together spread out."""
        ceiling = min(self.longest_wait, self.first_wait * 2.0 ** min(failures - 1, 60))
        return ceiling * random.uniform(0.5, 1.0)


PATIENCE = Patience()


def ignore_wait(seconds: float, reason: str) -> None:
    """For callers who do not watch."""


@dataclass(frozen=True)
class Retrying:
    """Try until it works, or until patience ends."""

    patience: Patience = PATIENCE
    random: Random = field(default_factory=Random)
    sleep: Callable[[float], None] = time.sleep
    on_wait: OnWait = ignore_wait

    def __call__(self, attempt: Callable[[], Answer], endpoint: str) -> tuple[Answer, Usage]:
        """The first answer, and what the attempts that broke before it used.

        Only :class:`Transient` is retried. Everything else, an interrupt above all, passes through.
        """
        lost, waited = Usage(), 0.0
        for failures in range(1, self.patience.tries + 1):
            try:
                return attempt(), lost
            except Transient as failure:
                reason, asked = failure.reason, failure.retry_after
                lost += failure.spent
            wait = self.patience.backoff(failures, self.random) if asked is None else asked
            if failures == self.patience.tries:
                raise ModelError(f"{endpoint} failed {failures} times, the last time with: {reason}", RESUME)
            if waited + wait > self.patience.total_wait:
                raise ModelError(
                    f"{endpoint} failed with: {reason}; the next try would be in {wait:.0f} s, "
                    f"and one request waits at most {self.patience.total_wait:.0f} s in all",
                    RESUME,
                )
            self.on_wait(wait, reason)
            self.sleep(wait)
            waited += wait
        raise ValueError(f"at least one try is needed, not {self.patience.tries}")
