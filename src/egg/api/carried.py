"""Evaluations that were made on another machine and carried back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.evaluation import Evaluation
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.pool import Job


@dataclass(frozen=True)
class Results:
    """A results file: verdicts by job, and what was said of the jobs that got none."""

    verdicts: Mapping[str, Evaluation]
    failures: Mapping[str, str]


def read_results(path: Path) -> Results:
    """What ``egg eval-batch`` wrote.

    The last verdict on a job counts: a batch that was run again has later ones, and a job that
    failed in one go and was judged in another has a verdict only. A torn last line is what an
    interrupted batch leaves, and no damage; one that is whole but for its newline is read.
    """
    verdicts: dict[str, Evaluation] = {}
    failures: dict[str, str] = {}
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        torn = number == len(lines) and not _is_json(line)
        if torn or not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
            if "evaluation" in row:
                verdicts[str(row["job"])] = Evaluation.from_json(row["evaluation"])
            elif row.get("job") is not None:
                failures[str(row["job"])] = _message(row.get("error"))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as reason:
            raise UsageError(
                f"{path} line {number} is not a result: {reason}", "it must come from `egg eval-batch`"
            ) from None
    return Results(verdicts, {job: said for job, said in failures.items() if job not in verdicts})


def _lines(path: Path) -> list[str]:
    """The file's lines; the last one is empty where the file ends with a newline."""
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}", "make it with `egg eval-batch JOBS --out FILE`") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"cannot read {path}: {reason}", "it must be a file of JSON lines") from None


def _message(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class CarriedJudge:
    """Hands out carried verdicts; what is still missing the run goes on waiting for."""

    def __init__(self, results: Mapping[str, Evaluation]) -> None:
        self._results = results
        self.used: set[str] = set()

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        for job in jobs:
            if job.id in self._results:
                _check(job, self._results[job.id])
                self.used.add(job.id)
                yield job.id, self._results[job.id]
        missing = tuple(job for job in jobs if job.id not in self._results)
        if missing:
            raise WaitingForEvaluations(missing)


def _check(job: Job, evaluation: Evaluation) -> None:
    """A verdict must be on what was asked: the same task, kernel and terms."""
    asked = job.question
    for name, wanted, found in (
        ("task", asked.task.hash, evaluation.task_hash),
        ("kernel", asked.candidate.hash, evaluation.candidate_hash),
        ("policy", asked.policy, evaluation.policy),
    ):
        if wanted != found:
            raise UsageError(
                f"the result of job {job.id} is for another {name}: {found}, not {wanted}",
                "judge the jobs that `egg pending` wrote, unchanged",
            )
