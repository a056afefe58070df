"""Evaluations that were made on another machine and carried back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.evaluation import Evaluation
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.pool import Job


def read_results(path: Path) -> dict[str, Evaluation]:
    """Verdicts by job, from a file that ``egg eval-batch`` wrote; a line without a verdict is passed over.

    The last verdict on a job counts: a batch that was run again has later ones. A torn last
    line is what an interrupted batch leaves, and no damage.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}", "make it with `egg eval-batch JOBS --out FILE`") from None
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"cannot read {path}: {reason}", "it must be a file of JSON lines") from None
    found: dict[str, Evaluation] = {}
    for number, line in enumerate(lines, 1):
        torn = number == len(lines) and not _is_json(line)
        if torn or not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
            if "evaluation" in row:
                found[str(row["job"])] = Evaluation.from_json(row["evaluation"])
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as reason:
            raise UsageError(
                f"{path} line {number} is not a result: {reason}", "it must come from `egg eval-batch`"
            ) from None
    return found


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

    def close(self) -> None:
        pass


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
