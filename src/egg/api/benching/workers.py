"""Tasks shared out to worker processes of this host: each takes the next one, and every task has a result.

A worker holds a judge of its own, warm between tasks. Several judges on one GPU take turns while they
measure; that is theirs to arrange. A process that dies is replaced and its task tried once more; a run goes
on from its log. A process that cannot even start says nothing of its task, and ends the bench where it
happens again and again. Workers end with the program that started them, however that ends.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from egg.api.benching.channel import Done, Ready, Replied, Reported, Submitted, WorkerChannel
from egg.api.benching.news import Lost, News
from egg.api.benching.remote import Relay
from egg.bench.listing import key_of
from egg.core.errors import MachineError
from egg.core.source import Task
from egg.evaluator.process import sandbox

ATTEMPTS = 2
"""Times a task may lose its process before it is given up."""
FAILED_STARTS = 3
"""Processes in a row that end before they are ready."""
END_SECONDS = 15.0
TICK, BUSY_TICK = 1.0, 0.05
"""Seconds between two looks at the clock; shorter where a pool may answer meanwhile."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TaskRunner(Protocol[R_co]):
    """What a worker does with tasks; picklable. It is made ready once in every process."""

    def ready(self, channel: WorkerChannel) -> AbstractContextManager[Callable[[Task], R_co]]: ...


# -- in a worker -----------------------------------------------------------------------------------------


def serve(channel: Connection, runner: TaskRunner[Any], parent: int, log: Path | None) -> None:
    """Do every task that the parent sends, until there are no more."""
    sandbox.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if os.getppid() != parent:
        return
    if log is not None:
        _write_to(log)
    up = WorkerChannel(channel)
    with runner.ready(up) as work:
        for task in up.tasks():
            up.done(work(task))


def _write_to(log: Path) -> None:
    """What this process and its children print goes to ``log``: the terminal belongs to the parent."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    faulthandler.enable()


# -- in the parent ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Worker:
    """A process, and the task it is at."""

    runner: TaskRunner[Any]
    log: Path | None = None
    task: Task | None = None
    started: float = 0.0
    ready: bool = False
    """Whether its message ``Ready`` has arrived."""
    process: SpawnProcess = field(init=False)
    channel: Connection = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        arguments = (theirs, self.runner, os.getpid(), self.log)
        self.process = context.Process(target=serve, args=arguments)
        with _no_interrupts():
            self.process.start()
        theirs.close()

    @property
    def number(self) -> int:
        """Tells it from every other worker of its time."""
        assert self.process.pid is not None
        return self.process.pid

    def give(self, task: Task) -> None:
        self.task, self.started = task, time.monotonic()
        self.send(task)

    def send(self, message: Task | Replied | None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died: reading says so
            self.channel.send(message)

    def receive(self) -> Ready | Reported | Submitted | Done | None:
        """The next message; ``None`` where the process is gone."""
        try:
            return self.channel.recv()
        except (EOFError, OSError):  # before a message, or in the middle of one
            return None


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """A Ctrl-C in a terminal reaches every process there: one that is starting must not end by it.

    It inherits the mask, and lifts it once it knows what to do. Multiprocessing's own helper lifts it too
    when it starts, and so has to start before.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended(workers: Sequence[Worker], *, kill: bool) -> None:
    """Tell them to end, all at once, and see to it."""
    for worker in workers:
        if kill:
            worker.process.terminate()
        else:
            worker.send(None)
    deadline = time.monotonic() + END_SECONDS
    for insist in ("terminate", "kill"):
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                getattr(worker.process, insist)()
        deadline += END_SECONDS / 3
    for worker in workers:
        worker.process.join()
        worker.channel.close()


def results_of(
    tasks: Sequence[Task],
    runners: Sequence[TaskRunner[R]],
    given_up: Callable[[Task, str], R],
    *,
    relay: Relay | None = None,
    task_seconds: float | None = None,
    may_begin: Callable[[], bool] = lambda: True,
    log: Path | None = None,
    on_news: Callable[[News], None] = lambda news: None,
) -> Generator[R, None, None]:
    """A result for every task that may begin, as they come, from one process for each of ``runners``.

    ``given_up`` makes the result of a task that lost its process too often, or took more than
    ``task_seconds``, of the reason why. ``may_begin`` is asked before every task: those that it says no to
    have no result. What the processes print goes to the file ``log``. Leaving early ends them.
    """
    crew = _Workers(tasks, runners, given_up, relay, task_seconds, may_begin, log, on_news)
    finished = False
    try:
        while crew.hand_out():
            yield from crew.turn()
        finished = True
    finally:
        ended(crew.workers, kill=not finished)


@dataclass(eq=False)
class _Workers(Generic[R]):
    """The processes of :func:`results_of`, the tasks that wait for one, and how often a task lost its own."""

    tasks: Sequence[Task]
    runners: Sequence[TaskRunner[R]]
    given_up: Callable[[Task, str], R]
    relay: Relay | None
    task_seconds: float | None
    may_begin: Callable[[], bool]
    log: Path | None
    on_news: Callable[[News], None]
    workers: list[Worker] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._waiting = deque(self.tasks)
        self._vacant = deque(self.runners[: len(self.tasks)])
        self._lost: Counter[str] = Counter()
        self._failed_starts = 0

    def hand_out(self) -> bool:
        """Give every idle worker the next task, if there is one; whether any worker has a task."""
        for worker in [idle for idle in self.workers if idle.task is None and not idle.process.is_alive()]:
            self._dismiss(worker)
        while self._vacant and self._more() and len(self._idle) < len(self._waiting):
            self.workers.append(Worker(self._vacant.popleft(), self.log))
        for worker in self._idle:
            if self._more():
                worker.give(self._waiting.popleft())
        return any(worker.task is not None for worker in self.workers)

    @property
    def _idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.task is None]

    def _more(self) -> bool:
        return bool(self._waiting) and self.may_begin()

    def turn(self) -> Iterator[R]:
        """Wait a moment, and see to whatever happened."""
        busy = [worker for worker in self.workers if worker.task is not None]
        asking = self.relay is not None and self.relay.waits
        spoken = wait([worker.channel for worker in busy], timeout=BUSY_TICK if asking else TICK)
        for worker in busy:
            if worker.channel in spoken:
                yield from self._hear(worker)
            elif self.task_seconds is not None and self._late(worker):
                yield from self._end_late(worker)
        if self.relay is not None:
            self.relay.pass_on(BUSY_TICK)

    def _hear(self, worker: Worker) -> Iterator[R]:
        """All messages of a worker; a channel that closes is a process that died."""
        while worker.task is not None and worker.channel.poll():
            match worker.receive():
                case Ready():
                    worker.ready, self._failed_starts = True, 0
                case Reported(news=news):
                    self.on_news(news)
                case Submitted() as asked if self.relay is not None:
                    self.relay.take(worker.number, asked, worker.send)
                case Done(result=result):
                    worker.task = None
                    self._forget(worker)
                    yield result
                case _:
                    yield from self._replace(worker)
                    return

    def _replace(self, worker: Worker) -> Iterator[R]:
        """Replace a process that died; its task is tried once more, and then given up."""
        task = worker.task
        assert task is not None
        worker.process.join(END_SECONDS / 3)  # so that the exit code is its own
        self._dismiss(worker)
        reason = f"its process ended with {_exit(worker.process.exitcode)}"
        if not worker.ready:
            self._waiting.appendleft(task)
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise MachineError(
                    f"worker processes end before they begin: {_exit(worker.process.exitcode)}",
                    f"see {self.log}" if self.log is not None else "run `egg doctor`",
                )
            return
        key = key_of(task)
        self._lost[key] += 1
        retried = self._lost[key] < ATTEMPTS
        self.on_news(Lost(key, reason, retried))
        if retried:
            self._waiting.appendleft(task)
        else:
            yield self.given_up(task, f"{reason}, {ATTEMPTS} times")

    def _late(self, worker: Worker) -> bool:
        assert self.task_seconds is not None
        return time.monotonic() - worker.started > self.task_seconds

    def _end_late(self, worker: Worker) -> Iterator[R]:
        task = worker.task
        assert task is not None
        self._dismiss(worker)
        reason = f"took more than {self.task_seconds:g} s"
        self.on_news(Lost(key_of(task), reason, retried=False))
        yield self.given_up(task, reason)

    def _dismiss(self, worker: Worker) -> None:
        """Be rid of a process that is gone, or is to go; another takes its place when there is work."""
        self._forget(worker)
        ended([worker], kill=True)
        self.workers.remove(worker)
        self._vacant.append(worker.runner)

    def _forget(self, worker: Worker) -> None:
        if self.relay is not None:
            self.relay.forget(worker.number)


def _exit(code: int | None) -> str:
    """An exit code in words: a negative one is the signal that ended the process."""
    if code is None or code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
