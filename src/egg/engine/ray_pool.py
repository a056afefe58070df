"""Judges on a Ray cluster, as a pool: one per GPU over all its machines.

The pool outlives whatever happens there. Judges and machines that die are replaced by the
bridge (``engine.cluster``); where the bridge itself ends, because the head of the cluster was lost
or the network was, another is sent as soon as the cluster can be reached, and gets every job
that is not answered yet. A job is answered once: an answer to a ticket that is not open is dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.error_json import error_from
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.evaluation import Evaluation
from egg.engine.cluster.actor import Kind
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.transport.wire import Channel, WireClosed

CONNECT_SECONDS = 60.0
"""For the bridge to join the cluster."""
REACH_SECONDS = 5.0
"""For the head to accept a connection."""
PATIENCE_SECONDS = 3600.0
"""Without any judge, before the pool gives up."""
RETRY_SECONDS = 5.0
"""Before another bridge is started."""
CLOSE_SECONDS = 15.0
FORMS = "use auto (from a machine of the cluster), HOST:PORT of its head, or ray://HOST:PORT from elsewhere"

_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


class RayPool:
    """A :class:`~egg.engine.pools.JudgePool` whose judges are on a Ray cluster.

    ``device`` is ``auto`` (the GPUs, or the CPUs where no node has a GPU), ``cuda`` or ``cpu``. ``on_note``
    hears what people may want to know: judges lost, nodes left out and why. Returns when the first judges
    are ready; raises ``UsageError`` for an address that leads nowhere, within seconds. ``judge`` names the
    class of the actors.
    """

    def __init__(
        self,
        address: str,
        device: str = "auto",
        *,
        on_note: Callable[[str], None] = lambda text: None,
        patience: float = PATIENCE_SECONDS,
        judge: str = "egg.engine.cluster.actor:OracleActor",
    ) -> None:
        _check(address, device)
        self._address, self._device = address, device
        self._on_note, self._patience, self._judge = on_note, patience, judge
        self._kind: Kind | None = None
        self.judges = 0
        """How many there are now."""
        self._open: dict[str, Job] = {}
        self._answered: list[tuple[str, Answer]] = []
        self._bridge: _Bridge | None = None
        self._lost_since: float | None = None
        """Since when there has been no bridge with judges, where there was one."""
        self._next_try = 0.0
        self._closed = False
        _reach(address)
        self._start_bridge()
        try:
            while self._kind is None:
                self._hear(1.0)
        except BaseException:
            self.close()
            raise

    def submit(self, ticket: str, job: Job) -> None:
        if ticket in self._open:
            raise ValueError(f"the ticket {ticket!r} is in use")
        self._open[ticket] = job
        if self._bridge is not None and self._bridge.connected:
            self._bridge.send({ticket: job})

    def answers(self, timeout: float) -> list[tuple[str, Answer]]:
        deadline = time.monotonic() + timeout
        while True:
            self._hear(0.0 if self._answered else max(0.0, deadline - time.monotonic()))
            if self._answered or time.monotonic() >= deadline:
                answered, self._answered = self._answered, []
                return answered

    def gpu(self) -> str | None:
        assert self._kind is not None
        return self._kind.gpu

    def close(self) -> None:
        self._closed = True
        self._open.clear()
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None

    def __enter__(self) -> RayPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the bridge -----------------------------------------------------------------------------------

    def _start_bridge(self) -> None:
        options = {
            "address": self._address,
            "device": self._device,
            "judge": self._judge,
            "kind": to_json(self._kind) if self._kind else None,
            "patience": self._patience,
        }
        self._bridge = _Bridge(options)

    def _hear(self, timeout: float) -> None:
        """Take the bridge's messages, waiting for the first up to ``timeout``; replace one that ended."""
        if self._closed:
            raise ValueError("the pool is closed")
        if self._bridge is None:
            self._try_again(timeout)
            return
        try:
            messages = self._bridge.messages(timeout)
        except WireClosed:
            self._lost(self._bridge.last_output())
            return
        if self._bridge.overdue():
            self._lost(f"it did not answer within {CONNECT_SECONDS:.0f} s")
        for message in messages:
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if "connected" in message and self._bridge is not None:
            self._bridge.send(self._open)
        elif "ready" in message:
            self._kind = from_json(Kind, message["ready"])
            self.judges = int(message["judges"])
            self._lost_since = None
        elif "note" in message:
            self._on_note(message["note"])
        elif "refused" in message:
            self._refused(error_from(message["refused"]))
        elif message.get("ticket") in self._open:
            job = self._open.pop(message["ticket"])
            self._answered.append((message["ticket"], _answer(job, message["line"])))

    def _refused(self, error: EggError) -> None:
        """At the start the user has to correct it; later the cluster may come back."""
        if self._kind is None or isinstance(error, MachineError):
            raise error
        self._lost(error.message)

    def _lost(self, reason: str) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None
        self.judges = 0
        if self._kind is None:
            raise UsageError(f"cannot join the Ray cluster at {self._address!r}: {reason}", FORMS)
        now = time.monotonic()
        if self._lost_since is None:
            self._lost_since = now
            self._on_note(f"the connection to the cluster is lost ({reason}); trying to find it again")
        elif now - self._lost_since > self._patience:
            raise MachineError(
                f"the cluster has been lost for {self._patience / 60:.0f} minutes: {reason}",
                "bring it back, then go on",
            )
        self._next_try = now + RETRY_SECONDS

    def _try_again(self, timeout: float) -> None:
        time.sleep(max(0.0, min(timeout, self._next_try - time.monotonic())))
        if time.monotonic() < self._next_try:
            return
        try:
            _reach(self._address)
        except UsageError as error:
            self._lost(error.message)
        else:
            self._start_bridge()


class _Bridge:
    """The process that talks to Ray, and the conversation with it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="egg-ray-"))
        """Its working folder, because Ray has every worker look for modules in the driver's."""
        self._output = self._folder / "output"
        self._channel, theirs = Channel.pair()
        self.connected = False
        """Whether it listens: before, what is sent might fill the socket."""
        self._due = time.monotonic() + CONNECT_SECONDS
        command = [
            sys.executable,
            "-m",
            "egg.engine.cluster.bridge",
            str(theirs.fileno()),
            json.dumps(options),
        ]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for the process that uses the pool
                env=os.environ | {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "PYTHONPATH": _paths()},
            )
        theirs.close()

    def send(self, jobs: dict[str, Job]) -> None:
        """By their tickets. Where it has ended they are lost, and go to the next one."""
        with contextlib.suppress(WireClosed):
            for ticket, job in jobs.items():
                self._channel.send({"ticket": ticket, "job": job.id, "line": job.to_line()})

    def messages(self, timeout: float) -> list[dict[str, Any]]:
        """The messages that arrived by now, waiting for the first up to ``timeout``."""
        found: list[dict[str, Any]] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            while selector.select(0.0 if found else timeout):
                try:
                    found.append(self._channel.receive()[0])
                except WireClosed:
                    if not found:
                        raise
                    return found
        self.connected = self.connected or bool(found)
        return found

    def overdue(self) -> bool:
        return not self.connected and time.monotonic() > self._due

    def last_output(self) -> str:
        """How its process ended, and the last line that it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        lines = self._output.read_text(errors="replace").split("\n") if self._output.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"its process ended with {self._process.returncode}: {last[:300]}"

    def close(self) -> None:
        self._channel.close()
        for insist in (self._process.terminate, self._process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS if self.connected else 0.1)
                break
            insist()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _paths() -> str:
    """Where the bridge finds this package, which is not in its working folder."""
    import egg

    root = str(Path(egg.__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))


def _answer(job: Job, line: str) -> Answer:
    data = json.loads(line)
    if "error" in data:
        return Answer(job.id, error=error_from(data["error"]))
    return Answer(job.id, Evaluation.from_json(data["evaluation"]))


# -- before anything is started ------------------------------------------------------------------------


def _check(address: str, device: str) -> None:
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed", 'pip install "egg-kernels[ray]", here and on every machine')
    if address != "auto" and not _ADDRESS.fullmatch(address):
        raise UsageError(f"not the address of a Ray cluster: {address!r}", FORMS)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"not a device of a cluster: {device!r}", "use auto, cuda or cpu")


def _reach(address: str) -> None:
    """A connection can be opened there. Ray itself would wait for minutes."""
    if address == "auto":
        return
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    host, port = found["host"].strip("[]"), int(found["port"])
    try:
        socket.create_connection((host, port), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"nothing answers at {address!r}: {error}", FORMS) from None
