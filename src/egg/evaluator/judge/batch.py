"""A file of jobs in, a file of results out: the same for the command line and for a bare GPU machine.

Each line of the results file is ``{"job", "evaluation"}`` or ``{"job", "error"}``, written as soon as the
job ends. A run that was killed goes on where it was: a job is skipped when the file holds an evaluation of
the same task, candidate, policy and settings under its name; jobs that met an error are tried again. A line
cut short by the kill is dropped first.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.codec import to_json
from egg.core.errors import UsageError
from egg.core.evaluation import NOT_WAITED, Rejected, Waited
from egg.core.lines import LineFile, whole_lines
from egg.evaluator.judge.pool import Answer, Job, devices, read_jobs, run_jobs
from egg.evaluator.judge.signing import key_from

TOLD_SECONDS = 0.1
"""Of waiting, from which on an answer is described with it."""

OnAnswer = Callable[[Answer, int, int], None]


def run_batch(
    jobs_file: Path, results_file: Path, device: str, on_answer: OnAnswer, seats: int = 1
) -> Counter[str]:
    """Judge every job that ``results_file`` does not answer yet; returns how many ended how.

    The keys are ``skipped`` and what :func:`outcome` says. Each answer is written and flushed before the
    next is awaited, and ``on_answer`` hears of it with the number done and the number in all. ``seats``
    is how many are judged at a time on each device.
    """
    jobs = read_jobs(jobs_file)
    with ResultsFile(results_file) as results:
        waiting = results.pending(jobs)
        counts = Counter(skipped=len(jobs) - len(waiting))

        def take(answer: Answer) -> None:
            results.add(answer)
            counts[outcome(answer)] += 1
            on_answer(answer, counts.total(), len(jobs))

        run_jobs(waiting, devices(device), take, seats)
    return counts


def exit_code(counts: Counter[str]) -> int:
    """0 when every job has a verdict, 3 when the machine failed some."""
    return 3 if counts["unable"] else 0


_OPENING = '{"job"'
"""How every line begins."""


class ResultsFile:
    """The append-only results file, opened for continuing; one process at a time writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = key_from(os.environ)
        self._lines: LineFile | None = None

    def __enter__(self) -> ResultsFile:
        self._lines = LineFile(self._path, _OPENING)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()

    def pending(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs whose verdict is not in the file yet."""
        repeated = [name for name, count in Counter(job.id for job in jobs).items() if count > 1]
        if repeated:
            raise UsageError(f"job ids are not unique: {', '.join(repeated[:5])}", "give each job its own id")
        judged = set(_judged(self._path))
        return [job for job in jobs if _job_identity(job) not in judged]

    def add(self, answer: Answer) -> None:
        """When this returns, the answer is on the disk."""
        if self._lines is None:
            raise RuntimeError("the results file is not open")
        self._lines.add(answer.to_line(self._key))


def outcome(answer: Answer) -> str:
    """``accepted``, ``rejected``, or ``unable``: no verdict was reached."""
    if answer.evaluation is None:
        return "unable"
    return "accepted" if answer.evaluation.accepted else "rejected"


def described(answer: Answer) -> str:
    """One line of words: the outcome, and where or why."""
    word = outcome(answer)
    if answer.error is not None:
        return f"{word}: {answer.error.message}"
    assert answer.evaluation is not None
    verdict, waited = answer.evaluation.verdict, answer.evaluation.waited
    if isinstance(verdict, Rejected):
        word = f"{word} at {verdict.refusal.gate.value}"
    return f"{word}; {waited}" if waited.total >= TOLD_SECONDS else word


@dataclass
class Times:
    """What the evaluations of a batch took together."""

    judged: float = 0.0
    waited: Waited = NOT_WAITED

    def add(self, judged: float, waited: Waited) -> None:
        self.judged += judged
        self.waited += waited

    def __str__(self) -> str:
        return f"{self.judged:.1f} s of judging; {self.waited}"


def _job_identity(job: Job) -> tuple[str, ...]:
    asked = job.question
    terms = (json.dumps(value, sort_keys=True) for value in (to_json(asked.policy), asked.replaced))
    return job.id, asked.task.sha256, asked.candidate.sha256, *terms


def _identity(job_id: str, evaluation: Mapping[str, Any]) -> tuple[str, ...]:
    """That of an earlier version's record is the one of no job: its hashes are too short to be one."""
    given = (evaluation["policy"], evaluation.get("settings", {}))
    terms = (json.dumps(value, sort_keys=True) for value in given)
    whole = (evaluation.get("task_sha256", ""), evaluation.get("candidate_sha256", ""))
    return job_id, *whole, *terms


def _judged(path: Path) -> Iterator[tuple[str, ...]]:
    """What the file holds an evaluation of."""
    for number, line in whole_lines(path):
        try:
            row = json.loads(line)
            name = row["job"]
            if "evaluation" in row:
                yield _identity(name, row["evaluation"])
        except (json.JSONDecodeError, TypeError, KeyError):
            raise UsageError(
                f"{path} line {number} is not a result", "choose another --out, or remove that line"
            ) from None
