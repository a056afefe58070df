"""A sample of what was accepted, judged again with all settings there is: does an audit refuse any of it?

Which tasks is drawn by lot from the rows that say accepted, by a seed that is given. Their kernel files go
through the judge at level ``audit``: more questions of every distribution, neighbouring shapes, the
sanitizer, 40 rounds of timing, and fresh processes in the end. Timed is against eager alone: what else the
kernel is faster than was measured before, and no verdict hangs on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from page import AUDITED
from record import ACCEPTED
from rows import MACHINE, Row, key_of_row
from tasks import Key, key_of, told

from egg.core.errors import UsageError
from egg.core.evaluation import Rejected
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.judge.question import Question
from egg.evaluator.trial.levels import LEVELS

AUDIT_SETTINGS = replace(LEVELS[Level.AUDIT], opponents=("eager",))


def drawn(rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """So many of the accepted, by lot; all of them where there are fewer."""
    accepted = sorted((row for row in rows if row["verdict"] == ACCEPTED), key=key_of_row)
    return random.Random(seed).sample(accepted, min(count, len(accepted)))


def kernel_of(row: Row) -> tuple[Key, str | None]:
    """What a row speaks of: another batch may have another kernel for the same task."""
    return key_of_row(row), row.get("kernel")


def jobs_for(sample: Sequence[Row], tasks: Sequence[Task], runs: Path) -> list[Job]:
    """The kernel that each row speaks of, and no other."""
    known = {key_of(task): task for task in tasks}
    jobs: list[Job] = []
    for row in sample:
        task = known.get(key_of_row(row))
        if task is None or task.hash != row["task"]:
            raise UsageError(f"no task {told(key_of_row(row))} as its row knows it", "name the same files")
        candidate = Candidate.from_file(_file_of(row, runs))
        if candidate.hash != row["kernel"]:
            raise UsageError(
                f"{_file_of(row, runs)} is not the kernel of its row", "name the folder of the same batch"
            )
        terms = row["policy"]
        policy = Policy(Precision(terms["precision"]), LibraryCalls(terms["library_calls"]), Level.AUDIT)
        jobs.append(Job(told(key_of_row(row)), Question(task, candidate, policy, settings=AUDIT_SETTINGS)))
    return jobs


def _file_of(row: Row, runs: Path) -> Path:
    level, problem = key_of_row(row)
    return runs / f"{level}_{problem}" / "kernel.py"


def row_of(answer: Answer, names: dict[Key, str]) -> Row:
    level, _, problem = answer.job.partition("/")
    key = int(level), int(problem)
    row: Row = {"level": key[0], "problem": key[1], "name": names[key], AUDITED: True}
    found = answer.evaluation
    if found is None:
        said = answer.error.message if answer.error else "no answer"
        return row | {"verdict": f"{MACHINE}{said}"}
    refusal = found.verdict.refusal if isinstance(found.verdict, Rejected) else None
    return row | {
        "verdict": ACCEPTED if refusal is None else f"refused at {refusal.gate.value}",
        "reason": "" if refusal is None else f"{refusal.reason}: {refusal.evidence[:300]}",
        "kernel": found.candidate_hash,
        "checks": 0 if isinstance(found.verdict, Rejected) else found.verdict.correctness.checks,
        "gates": {record.gate.value: record.passed for record in found.gates},
        "warnings": list(found.warnings),
        "seconds": {"all": round(found.seconds, 2)},
    }
