"""Work for worker processes that needs no PyTorch: what a task's source says, happens."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from egg.api.benching.channel import WorkerChannel
from egg.api.benching.news import Began
from egg.core.source import Task

SOURCE = """
act = {act!r}
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
"""


def acting(number: int, act: str = "answer") -> Task:
    return Task(f"{number}_task", SOURCE.format(act=act), 1, number)


@dataclass(frozen=True)
class Acting:
    """Answers with the task's number and its own process; ``marks`` remembers what happened before."""

    marks: Path

    @contextmanager
    def ready(self, channel: WorkerChannel) -> Iterator[Callable[[Task], tuple[int, int]]]:
        print("a worker speaks", flush=True)
        yield lambda task: self.act(task, channel)

    def act(self, task: Task, channel: WorkerChannel) -> tuple[int, int]:
        channel.tell(Began(str(task.problem_id), task.name, resumed=False))
        known: dict[str, str] = {}
        exec(task.source, known)  # ours: a word
        mark = self.marks / f"{task.problem_id}"
        times = int(mark.read_text()) if mark.exists() else 0
        mark.write_text(str(times + 1))
        match known["act"]:
            case "die":
                os._exit(3)
            case "die once" if times == 0:
                os.kill(os.getpid(), 9)
            case "die speaking" if times == 0:
                os.write(channel._channel.fileno(), struct.pack("!i", 1000) + b"the first half of a message")
                os.kill(os.getpid(), 9)
            case "sleep":
                time.sleep(60)
            case "raise":
                raise RuntimeError("a fault of the worker's own")
            case "linger":
                time.sleep(0.3)
        return task.problem_id or 0, os.getpid()


@dataclass(frozen=True)
class Stillborn:
    """Cannot be made ready."""

    @contextmanager
    def ready(self, channel: WorkerChannel) -> Iterator[Callable[[Task], tuple[int, int]]]:
        print("there is no such device", file=sys.stderr, flush=True)
        raise RuntimeError("no device")
        yield


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: set[int], seconds: float = 40.0) -> bool:
    """Whether these processes end soon."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))
