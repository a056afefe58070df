"""Worker processes that fork once per task: a crash or a hang costs one call, not the sweep.

A worker is a fresh interpreter that loads PyTorch, Triton and the built-in team once, with the environment
that the device needs. It reads a request per line and answers with a row per line. What a request does
happens in a fork; the worker reads what the fork reports, ends it where it takes too long, and starts another
one behind the call that was begun last.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
Act = Callable[[Json, Callable[[Json], None]], None]


class Worker:
    """A process that answers requests one after another."""

    def __init__(self, module: str, device: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        if device == "cpu":
            environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        else:
            environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a driver that was asked cannot be forked
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, device],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, request: Json) -> Json:
        """The row of a request; ``OSError`` where the worker is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise BrokenPipeError("the worker died")
        return json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def rows_of(
    requests: Iterable[Json], module: str, device: str, workers: int, until: float = inf
) -> Iterator[Json]:
    """A row for every request, as they come, as far as they come until then by the monotonic clock."""
    waiting: SimpleQueue[Json] = SimpleQueue()
    done: SimpleQueue[Json] = SimpleQueue()
    count = 0
    for request in requests:
        waiting.put(request)
        count += 1
    lines = [_Line(waiting, done, module, device) for _ in range(min(workers, count))]
    try:
        for line in lines:
            line.start()
        for _ in range(count):
            try:
                yield done.get(timeout=None if until == inf else max(0.0, until - time.monotonic()))
            except Empty:
                return
    finally:
        for line in lines:
            line.end()


class _Line(threading.Thread):
    """Keeps one worker busy."""

    def __init__(self, waiting: SimpleQueue[Json], done: SimpleQueue[Json], module: str, device: str) -> None:
        super().__init__(daemon=True)
        self._waiting, self._done = waiting, done
        self._new = lambda: Worker(module, device)
        self._worker: Worker | None = None

    def run(self) -> None:
        while True:
            try:
                request = self._waiting.get_nowait()
            except Empty:
                break
            self._worker = self._worker or self._new()
            try:
                row = self._worker.ask(request)
            except OSError as error:
                self._worker.close()
                self._worker = None
                row = {"key": request["key"], "trouble": str(error)}
            self._done.put(row)
        self.end()

    def end(self) -> None:
        if self._worker is not None:
            self._worker.close()


# -- in the worker ---------------------------------------------------------------------------------------


def serve(answer: Callable[[Json], Json]) -> None:
    """Answer requests until standard input ends; what is printed meanwhile goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


def reported_by_fork(act: Callable[[Callable[[Json], None]], None], silence: float) -> Iterator[Json]:
    """What ``act`` reports from a fork, as it comes. Last comes ``{"exit": status}``: 0, a code, minus a
    signal, or ``"silent"`` where the fork reported nothing for so many seconds and was ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _act(act, os.fdopen(write, "w"))
    os.close(write)
    try:
        with os.fdopen(read, "rb", buffering=0) as lines:
            silent = yield from _lines(lines, silence)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    yield {"exit": "silent" if silent else status}


def _act(act: Callable[[Callable[[Json], None]], None], out: IO[str]) -> None:
    code = 1
    try:

        def report(message: Json) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        try:
            act(report)
            code = 0
        except Exception as error:
            report(
                {"trouble": f"{type(error).__name__}: {error}"[:400], "trace": traceback.format_exc()[-1500:]}
            )
    finally:
        out.flush()
        os._exit(code)


def _lines(stream: IO[bytes], silence: float) -> Iterator[Json]:
    """Whole lines until the other end closes; returns whether it was silent for too long."""
    held = b""
    until = time.monotonic() + silence
    while True:
        ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return True
        piece = os.read(stream.fileno(), 1 << 16)
        if not piece:
            return False
        *whole, held = (held + piece).split(b"\n")
        for line in whole:
            yield json.loads(line)
            until = time.monotonic() + silence
