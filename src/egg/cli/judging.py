"""One question to the judge, asked from the command line."""

from __future__ import annotations

from collections.abc import Callable

from egg.core.evaluation import Evaluation, Gate
from egg.core.policy import Policy
from egg.core.source import Candidate, Task


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
    from egg.evaluator.judge.oracle import Oracle
    from egg.evaluator.judge.question import Question
    from egg.evaluator.process.machine import device_name

    oracle = Oracle(device_name(device))
    try:
        return oracle.judge(Question(task, candidate, policy, target, skip), on_gate)
    finally:
        oracle.close()
        if oracle.printed.strip():
            on_printed(oracle.printed)
