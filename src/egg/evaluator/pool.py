"""Evaluations as jobs over all visible GPUs: one oracle per device, one evaluation per device at a time."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.policy import Policy
from egg.core.source import Candidate, Task
from egg.evaluator.oracle import Oracle, error_to
from egg.evaluator.question import Question

RETRIES = 1


@dataclass(frozen=True)
class Job:
    """A question with a name of its own."""

    id: str
    question: Question

    def to_line(self) -> str:
        return json.dumps({"job": self.id, "question": to_json(self.question)})


@dataclass(frozen=True)
class Answer:
    """A job's end: an evaluation, or the reason why there is none."""

    job: str
    evaluation: Evaluation | None = None
    error: EggError | None = None

    def to_line(self) -> str:
        if self.evaluation is not None:
            return json.dumps({"job": self.job, "evaluation": self.evaluation.to_json()})
        assert self.error is not None
        return json.dumps({"job": self.job, "error": error_to(self.error)})


def devices(name: str) -> list[str]:
    """The devices a name stands for: ``auto`` is every visible GPU, or the CPU where there is none."""
    from egg.evaluator.machine import choose_device
    from egg.hardware.detect import present_gpus

    if name == "auto":
        return [f"cuda:{gpu.index}" for gpu in present_gpus()] or ["cpu"]
    return [str(choose_device(name))]


def read_jobs(path: Path) -> list[Job]:
    """Jobs from a JSON-lines file.

    A line is ``{"job", "question"}`` as :meth:`Job.to_line` writes it, or the short form
    ``{"job", "task": {name, code}, "kernel": SOURCE, "policy": {...}}``.
    """
    jobs = []
    for number, line in enumerate(_lines(path), 1):
        try:
            jobs.append(_job(json.loads(line), number))
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise UsageError(
                f"{path.name} line {number} is not a job: {error!r}",
                'expected {"job": ..., "question": {...}}',
            ) from error
    return jobs


def _job(row: dict[str, Any], number: int) -> Job:
    name = str(row.get("job", number))
    if "question" in row:
        return Job(name, from_json(Question, row["question"]))
    task = Task.from_json_line(json.dumps(row["task"]))
    policy = from_json(Policy, row.get("policy", {}))
    return Job(name, Question(task, Candidate(row["kernel"], name), policy, row.get("target")))


def finished(path: Path) -> set[str]:
    """Names of jobs that a results file already answers; a torn last line is passed over."""
    if not path.exists():
        return set()
    done = set()
    for line in _lines(path):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "evaluation" in row:
            done.add(str(row["job"]))
    return done


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}", "check the path") from error
    return (line for line in text.splitlines() if line.strip())


def run_jobs(jobs: Iterable[Job], device_names: list[str], on_answer: Callable[[Answer], None]) -> None:
    """Answer every job; ``on_answer`` is called from this thread, in the order they finish."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    count = 0
    for job in jobs:
        waiting.put(job)
        count += 1
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    oracles = [Oracle(name) for name in device_names]
    threads = [threading.Thread(target=_serve, args=(o, waiting, answers), daemon=True) for o in oracles]
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            on_answer(answers.get())
    finally:
        while not waiting.empty():
            waiting.get()
        for oracle in oracles:
            oracle.close()


def _serve(oracle: Oracle, waiting: queue.SimpleQueue[Job], answers: queue.SimpleQueue[Answer]) -> None:
    """Take jobs until there are none; a dead oracle is replaced and the job tried once more."""
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        answers.put(_answer(oracle, job, RETRIES))


def _answer(oracle: Oracle, job: Job, retries: int) -> Answer:
    try:
        return Answer(job.id, oracle.judge(job.question))
    except MachineError as error:
        oracle.close()
        return _answer(oracle, job, retries - 1) if retries else Answer(job.id, error=error)
    except EggError as error:
        return Answer(job.id, error=error)
