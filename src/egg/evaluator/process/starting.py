"""Two ways to start a forkserver: as a program of its own, or as a fork of this process.

A program of its own imports everything itself. A fork inherits what this process has imported: PyTorch takes
three seconds, and an oracle without a GPU starts two forkservers. Only a process that has one thread, no
secret and no CUDA context may be forked; a judge is such a process before it is confined.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from egg.evaluator.process.forkserver import run_and_exit
from egg.evaluator.transport.wire import Channel

POLL_SECONDS = 0.02
STREAMS = (0, 1, 2)

Begin = Callable[[Channel, Sequence[str]], None]
"""What the new process does with its channel and its arguments."""


class Process(Protocol):
    """What :class:`subprocess.Popen` and :class:`Forked` have in common."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...


Start = Callable[[Channel, Sequence[str], Mapping[str, str], Path], Process]
"""Start a process with one end of a channel, arguments, an environment and a working directory."""


def as_program(module: str) -> Start:
    """A new interpreter that runs ``module``; its arguments begin with the descriptor of its channel."""

    def start(
        channel: Channel, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Process:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(channel.fileno()), *arguments],
            env=environment,
            pass_fds=(channel.fileno(),),
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )

    return start


def as_fork(begin: Begin) -> Start:
    """A fork of this process that calls ``begin``, with an environment and files of its own."""

    def start(
        channel: Channel, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Process:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become(begin, channel, arguments, environment, folder)
        return Forked(pid)

    return start


def _become(
    begin: Begin, channel: Channel, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
) -> None:
    """In the fork: let go of what is the parent's, then ``begin``; never return."""

    def run() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        close_all_but(*STREAMS, channel.fileno())
        begin(channel, arguments)

    run_and_exit(run)


def close_all_but(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


class Forked:
    """A forked child, with the methods of :class:`subprocess.Popen` that its owner needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
