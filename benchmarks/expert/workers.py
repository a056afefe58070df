"""Tasks shared out to processes: each takes the next one; whatever becomes of it, every task has a row.

A worker holds a judge (or a compiler) of its own, warm between tasks. Several judges on one GPU take turns
while they measure; that is theirs to arrange. Workers end with the program that started them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from record import blank
from rows import MACHINE, Row
from running import Terms, run_task

from egg.core.source import Task
from egg.engine.judges import LocalJudge
from egg.evaluator.process import sandbox
from egg.hardware.gpus import resolve

LIVES = 2
"""Times a task may lose its process before it is given up."""
END_SECONDS = 10.0


@dataclass(frozen=True)
class RunTasks:
    """Every task is run by the engine, judged on ``device``."""

    terms: Terms
    device: str

    @contextmanager
    def ready(self) -> Iterator[Callable[[Task], Row]]:
        judge = LocalJudge(self.device)
        try:
            yield lambda task: run_task(task, self.terms, judge)
        finally:
            judge.close()


@dataclass(frozen=True)
class CompileTasks:
    """Every task's file is written into ``files`` and compiled for ``target``."""

    target: str
    files: Path

    @contextmanager
    def ready(self) -> Iterator[Callable[[Task], Row]]:
        from compiling import Compiler, compile_task  # with PyTorch, which only workers need

        compiler = Compiler(resolve(self.target))
        try:
            yield lambda task: compile_task(task, compiler, self.files)
        finally:
            compiler.close()


Trade = RunTasks | CompileTasks
"""What workers do with a task."""


def serve(channel: Connection, trade: Trade, parent: int) -> None:
    """Answer every task with its row until there are no more."""
    sandbox.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.getppid() != parent:
        return
    making: AbstractContextManager[Callable[[Task], Row]] = trade.ready()
    with suppress(EOFError, BrokenPipeError), making as work:
        while (task := channel.recv()) is not None:
            channel.send(work(task))


@dataclass
class Worker:
    """A process, and the task it is at."""

    trade: Trade
    task: Task | None = None
    started: float = 0.0
    process: SpawnProcess = field(init=False)
    channel: Connection = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.trade, os.getpid()))
        self.process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.task, self.started = task, time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):  # it died: taking says so
            self.channel.send(task)

    def take(self) -> Row | None:
        """The row of its task; ``None`` where the process is gone."""
        try:
            row = self.channel.recv()
        except (EOFError, ConnectionResetError):
            return None
        self.task = None
        return row

    def end(self, *, kill: bool = False) -> None:
        """Tell it to end, and see to it."""
        if kill:
            self.process.terminate()
        else:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.channel.send(None)
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.channel.close()


def rows_of(
    tasks: Sequence[Task], trades: Sequence[Trade], *, task_seconds: float, begin_until: float
) -> Generator[Row, None, None]:
    """A row for every task, as they come; none is begun after ``begin_until`` (of the monotonic clock)."""
    waiting = list(reversed(tasks))
    lost: dict[str, int] = {}
    workers = [Worker(trade) for trade in trades[: len(tasks)]]
    finished = False
    try:
        while True:
            for worker in workers:
                if worker.task is None and waiting and time.monotonic() < begin_until:
                    worker.give(waiting.pop())
            busy = [worker for worker in workers if worker.task is not None]
            if not busy:
                break
            ready = wait([worker.channel for worker in busy], timeout=1.0)
            for index, worker in enumerate(workers):
                task = worker.task
                if task is None:
                    continue
                late = time.monotonic() - worker.started > task_seconds
                row = worker.take() if worker.channel in ready else None
                if row is not None:
                    yield row
                elif worker.channel in ready or late:
                    worker.end(kill=True)
                    code = worker.process.exitcode
                    workers[index] = Worker(worker.trade)
                    lost[task.hash] = lost.get(task.hash, 0) + 1
                    if late:
                        yield blank(task, f"{MACHINE}took more than {task_seconds:g} s")
                    elif lost[task.hash] < LIVES:
                        waiting.append(task)
                    else:
                        yield blank(task, f"{MACHINE}its process ended with {code}")
        finished = True
    finally:
        for worker in workers:
            worker.end(kill=not finished)
