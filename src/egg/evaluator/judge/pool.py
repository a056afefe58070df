"""Evaluations as jobs over all visible GPUs.

On each device one oracle, or as many as there are seats: those take turns where time is
measured (:mod:`egg.evaluator.process.sharing`) and overlap everywhere else.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.error_json import error_to
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.lines import text_lines
from egg.core.policy import Policy
from egg.core.recording import Recording
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question, RecordRequest, read_question
from egg.evaluator.judge.signing import signed

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

    def to_line(self, key: bytes | None = None) -> str:
        """As a results file holds it; signed where there is a key."""
        if self.evaluation is not None:
            return json.dumps(signed({"job": self.job, "evaluation": self.evaluation.to_json()}, key))
        assert self.error is not None
        return json.dumps(signed({"job": self.job, "error": error_to(self.error)}, key))


def devices(name: str) -> list[str]:
    """The devices a name stands for: ``auto`` is every visible GPU, or the CPU where there is none."""
    from egg.evaluator.process.machine import device_name
    from egg.hardware.detect import present_gpus

    if name == "auto":
        return [f"cuda:{gpu.index}" for gpu in present_gpus()] or ["cpu"]
    return [device_name(name)]


def read_jobs(path: Path) -> list[Job]:
    """Jobs from a JSON-lines file.

    A line is ``{"job", "question"}`` as :meth:`Job.to_line` writes it, or the short form
    ``{"job", "task": {name, code}, "kernel": SOURCE, "policy": {...}}``.
    """
    jobs = []
    for number, line in text_lines(path, "it must be a UTF-8 file of JSON lines"):
        try:
            jobs.append(_job(json.loads(line), number))
        except UsageError as error:
            raise UsageError(f"{path.name} line {number}: {error.message}", error.hint) from error
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise UsageError(
                f"{path.name} line {number} is not a job: {_problem(error)}",
                'expected {"job": ..., "task": {"name": ..., "code": ...}, "kernel": ..., "policy": {...}}',
            ) from error
    return jobs


def _problem(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def _job(row: dict[str, Any], number: int) -> Job:
    name = str(row.get("job", number))
    if "question" in row:
        return Job(name, read_question(row["question"]))
    task = Task.from_json_line(json.dumps(row["task"]))
    policy = from_json(Policy, row.get("policy", {}))
    return Job(name, Question(task, Candidate(row["kernel"], name), policy, row.get("target")))


def run_jobs(
    jobs: Iterable[Job], device_names: list[str], on_answer: Callable[[Answer], None], seats: int = 1
) -> None:
    """Answer every job; ``on_answer`` is called from this thread, in the order they finish."""
    pool = Pool(device_names, seats)
    try:
        for answer in pool.answers(jobs):
            on_answer(answer)
    finally:
        pool.close()


class Pool:
    """So many oracles per device, kept warm between batches."""

    def __init__(self, device_names: Iterable[str], seats: int = 1) -> None:
        names = list(device_names)
        self._oracles = [Oracle(name) for _ in range(seats) for name in names]

    def answers(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """Every job's answer as it comes. Leaving early interrupts what is being judged."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        count = 0
        for job in jobs:
            waiting.put(job)
            count += 1
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        stopped = threading.Event()
        threads = [
            threading.Thread(target=_serve, args=(oracle, waiting, answers, stopped), daemon=True)
            for oracle in self._oracles[:count]
        ]
        for oracle, thread in zip(self._oracles, threads, strict=False):
            oracle.start()  # here, so that it outlives the batch
            thread.start()
        finished = False
        try:
            for _ in range(count):
                yield answers.get()
            finished = True
        finally:
            stopped.set()
            if not finished:
                for oracle in self._oracles:
                    oracle.interrupt()
            for thread in threads:
                thread.join()

    def record(self, request: RecordRequest) -> Recording:
        """What torch.compile generates for a task, by the first oracle, which judged the last one kernel.

        A dead oracle is replaced and asked once more.
        """
        oracle = self._oracles[0]
        try:
            return oracle.record(request)
        except MachineError:
            oracle.close()
            return oracle.record(request)

    def close(self) -> None:
        for oracle in self._oracles:
            oracle.close()


def _serve(
    oracle: Oracle,
    waiting: queue.SimpleQueue[Job],
    answers: queue.SimpleQueue[Answer],
    stopped: threading.Event,
) -> None:
    """Take jobs until there are none; the oracle is this thread's alone for as long as it runs."""
    while not stopped.is_set():
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        answers.put(_answer(oracle, job, stopped))


def _answer(oracle: Oracle, job: Job, stopped: threading.Event) -> Answer:
    """A dead oracle is replaced and the job tried once more; every job gets an answer, whatever happens."""
    error: EggError = MachineError("interrupted", "run again")
    for _ in range(1 + RETRIES):
        if stopped.is_set():
            break
        try:
            return Answer(job.id, oracle.judge(job.question))
        except MachineError as reason:
            error = reason
            oracle.close()
        except EggError as reason:
            return Answer(job.id, error=reason)
        except Exception as fault:  # ours, not the candidate's: it must not leave the job without an answer
            error = MachineError(f"internal error: {type(fault).__name__}: {fault}", "please report it")
            oracle.close()
    return Answer(job.id, error=error)
