"""One question to the judge, asked from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from egg.core.evaluation import Evaluation, Gate, PlanAnswer
from egg.core.policy import Policy, Precision
from egg.core.source import Candidate, Task

if TYPE_CHECKING:
    from egg.evaluator.judge.oracle import Oracle


def evaluate(
    task: Task,
    candidate: Candidate,
    policy: Policy,
    *,
    device: str = "auto",
    target: str | None = None,
    on_gate: Callable[[Gate], None] = lambda _: None,
    on_printed: Callable[[str], None] = lambda _: None,
    skip: tuple[Gate, ...] = (),
) -> Evaluation:
    """Judge in a process of its own, which is gone when this returns or raises; without the gates ``skip``.

    ``on_printed`` hears the end of what was printed there, if anything was: the task's code runs there.
    """
    from egg.evaluator.judge.question import Question

    with _oracle(device, on_printed) as oracle:
        return oracle.judge(Question(task, candidate, policy, target, skip), on_gate)


def recorded(
    task: Task,
    candidate: Candidate,
    precision: Precision,
    *,
    device: str = "auto",
    target: str | None = None,
    on_printed: Callable[[str], None] = lambda _: None,
) -> PlanAnswer:
    """A plan of a kernel file's calls, or why there is none; in a process of its own."""
    from egg.evaluator.judge.question import PlanRequest

    with _oracle(device, on_printed) as oracle:
        return oracle.plan(PlanRequest(task, candidate, precision, target))


@contextmanager
def _oracle(device: str, on_printed: Callable[[str], None]) -> Iterator[Oracle]:
    from egg.evaluator.judge.oracle import Oracle
    from egg.evaluator.process.machine import device_name

    oracle = Oracle(device_name(device))
    try:
        yield oracle
    finally:
        oracle.close()
        if oracle.printed.strip():
            on_printed(oracle.printed)
