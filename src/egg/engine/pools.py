"""Where kernels are judged when that is not the process that asks: a pool takes jobs and gives answers."""

from __future__ import annotations

from typing import Protocol

from egg.evaluator.judge.pool import Answer, Job


class JudgePool(Protocol):
    """Jobs in, answers out, both at any time; used by one thread.

    The contract:

    - ``submit`` returns at once. Tickets are the caller's, each used once, and mean nothing to the pool; two
      jobs may have the same id.
    - Jobs are begun in the order in which they came. One that the pool has to try again (its machine died)
      may lose its place.
    - Every job is answered once, with an evaluation or with the reason why there is none: a pool never raises
      for what a kernel, a task or one machine of many did. It raises an ``EggError`` where the whole pool can
      go on no longer.
    - Where nothing is there to judge on, the pool waits for machines to come (back); jobs stay in it.
    """

    def submit(self, ticket: str, job: Job) -> None:
        """Have a job judged."""
        ...

    def answers(self, timeout: float) -> list[tuple[str, Answer]]:
        """Whatever was answered since the last call, with the tickets; waits for the first of them up to
        ``timeout`` seconds, and not at all where that is zero."""
        ...

    def gpu(self) -> str | None:
        """The kind of GPU that kernels are measured on, as its driver names it; ``None`` where CPUs judge.

        Asked before the first job. What is written for that GPU is what is measured there: a pool of
        several kinds names one and judges on that kind only.
        """
        ...

    def close(self) -> None:
        """Drop what is not answered yet, and give everything back. May be called twice."""
        ...
