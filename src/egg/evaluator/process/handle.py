"""The oracle's handles on the untrusted side: a :class:`ForkServer` and its :class:`WorkerHandle`.

Whatever a worker does wrong comes back as a :class:`Fault`: a value with a reason code and
evidence, which a gate turns into a refusal. Only a forkserver that cannot be started is a
:class:`~egg.core.errors.MachineError`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import egg
from egg.core.errors import MachineError
from egg.core.evaluation import RefusalFacts
from egg.evaluator.process import sandbox
from egg.evaluator.process.forkserver import KEPT_FOLDER
from egg.evaluator.process.starting import Start, as_program
from egg.evaluator.transport.protocol import Complaint, Request, Warm, reply_to
from egg.evaluator.transport.strict import Malformed, plain, strictly
from egg.evaluator.transport.wire import Channel, WireClosed, WireGarbled

ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)  # fmt: skip
AS_PROGRAM = as_program("egg.evaluator.process.forkserver")
START_SECONDS = 120.0
POLL_SECONDS = 0.05
END_SECONDS = 10.0
MAX_REPLY = 8 << 20
MEMORY_FRACTION = 0.5
"""The share of GPU memory a candidate may take; the rest is the reference's."""

NO_FACTS = RefusalFacts()
Reply = TypeVar("Reply")


class Fault(Exception):
    """What a candidate's process did wrong: a reason code, what was seen, and facts for programs."""

    def __init__(
        self, reason: str, evidence: str, facts: RefusalFacts = NO_FACTS, last_words: str = ""
    ) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason, self.evidence, self.facts = reason, evidence, facts
        self.last_words = last_words
        """What a process that died had printed last."""


class WorkerHandle:
    """One candidate process: ask it things under a deadline, then end it."""

    def __init__(
        self, channel: Channel, output: int, supervisor: int, lifeline: socket.socket, limits: sandbox.Limits
    ) -> None:
        self._channel = channel
        self._output = output
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._limits = limits
        self._printed = bytearray()
        self._printed_total = 0
        self._sequence = 0
        self.alive = True
        self.pid = 0
        self.means: tuple[str, ...] = ()
        self.phase = ""
        """What it says that it does right now, where it says so."""
        self.phase_seconds = math.inf
        """For each thing that it says it does."""
        self._phase_ends = math.inf
        self.apart: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Surrounds what the worker does without its GPU."""
        os.set_blocking(output, False)

    def await_ready(self, timeout: float) -> None:
        """Wait until the worker is confined and ready."""
        hello = self._await_reply(0, time.monotonic() + timeout)
        self.pid, self.means = int(hello["pid"]), tuple(hello["sandbox"])

    def ask(self, request: Request[Reply], timeout: float, fds: tuple[int, ...] = ()) -> Reply:
        """Send one request of the judge's protocol; raises :class:`Fault` for everything that goes wrong.

        A reply that is not exactly of the request's reply class was forged, and ends the process.
        """
        data = self.request(request.command, timeout, fds, arguments=plain(request))
        try:
            return reply_to(request, data.get("reply"))
        except Malformed as error:
            raise self._ended(Fault("limits.protocol", f"a reply outside of the protocol: {error}")) from None

    def request(
        self, command: str, timeout: float, fds: tuple[int, ...] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Send one command of any protocol and return its reply as it was written."""
        if not self.alive:
            raise Fault("limits.died", "the process has ended")
        self._sequence += 1
        self._channel.sock.settimeout(timeout)
        try:
            self._channel.send({"id": self._sequence, "command": command, **arguments}, fds)
        except WireClosed:
            raise self._death() from None
        reply = self._await_reply(self._sequence, time.monotonic() + timeout)
        if "fault" in reply:
            try:
                found: Complaint = strictly(Complaint, reply["fault"], "fault")
            except Malformed as error:
                raise self._ended(Fault("limits.protocol", f"outside of the protocol: {error}")) from None
            facts = RefusalFacts(line=found.line, function=found.function, capturing=found.capturing)
            raise Fault(found.reason, found.evidence[:4000], facts)
        return reply

    @property
    def printed(self) -> str:
        """The end of what the candidate printed."""
        return self._printed.decode(errors="replace")

    def end(self) -> None:
        """Kill the process tree and everything it left."""
        if not self.alive:
            return
        self.alive = False
        self._channel.close()
        os.close(self._output)
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
            self._lifeline.settimeout(END_SECONDS)
            self._lifeline.recv(1)  # the supervisor hangs up in turn when nothing is left below it
        self._lifeline.close()

    def _await_reply(self, sequence: int, deadline: float) -> dict[str, Any]:
        while True:
            reply = self._message(deadline)
            if reply.get("id") == sequence:
                return reply
            if reply.keys() == {"task"}:
                self._begins(str(reply["task"]))
            elif reply == {"apart": True}:
                deadline += self._without_gpu(deadline)
            else:
                raise self._unasked()

    def _without_gpu(self, deadline: float) -> float:
        """Let others have the GPU until the worker needs it again; for how many seconds it waited then.

        A worker that uses the GPU all the same disturbs what others measure, as one does that leaves work
        behind in a stream: times lie further apart, and no contestant gains by it.
        """
        with self.apart():
            if self._message(deadline) != {"apart": False}:
                raise self._unasked()
            ready = time.monotonic()
        waited = time.monotonic() - ready
        try:
            self._channel.send({"resume": True})
        except WireClosed:
            raise self._death() from None
        return waited

    def _unasked(self) -> Fault:
        return self._ended(Fault("limits.protocol", "a reply without a request was written"))

    def _message(self, deadline: float) -> dict[str, Any]:
        """The next one; meanwhile what the candidate prints is taken in, and limits are watched."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(POLL_SECONDS)}
                if self._output in ready and not self._drain():
                    selector.unregister(self._output)
                if self._channel in ready:
                    return self._receive(deadline)
                self._watch(deadline)

    def _receive(self, deadline: float) -> dict[str, Any]:
        try:
            reply, fds = self._channel.receive(deadline, MAX_REPLY)
        except WireGarbled as error:
            raise self._ended(Fault("limits.protocol", f"garbage on the judge's channel: {error}")) from None
        except TimeoutError:
            raise self._ended(
                Fault("limits.protocol", "an answer was begun and not ended within the time limit")
            ) from None
        except WireClosed:
            raise self._death() from None
        for fd in fds:
            os.close(fd)
        return reply

    def _begins(self, phase: str) -> None:
        self.phase = phase
        self._phase_ends = time.monotonic() + self.phase_seconds if phase else math.inf

    def _watch(self, deadline: float) -> None:
        if time.monotonic() > min(deadline, self._phase_ends):
            raise self._ended(
                Fault("limits.timeout", "no answer within the time limit; the process was killed")
            )
        resident = resident_bytes(self.pid)
        if resident > self._limits.resident:
            raise self._ended(
                Fault(
                    "limits.memory",
                    f"{resident >> 20} MiB resident, the limit is {self._limits.resident >> 20}",
                )
            )

    def _drain(self) -> bool:
        """Take in what the candidate printed; False when it closed its end."""
        try:
            data = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return True
        self._printed = (self._printed + data)[-8192:]
        self._printed_total += len(data)
        if self._printed_total > self._limits.output:
            raise self._ended(Fault("limits.output", f"printed over {self._limits.output} bytes"))
        return bool(data)

    def _death(self) -> Fault:
        with contextlib.suppress(Fault, OSError):
            while self._drain():
                if not selectors_ready(self._output):
                    break
        last = self.printed.strip().splitlines()[-3:]
        words = f"last words: {' | '.join(last)}" if last else ""
        evidence = "; ".join(filter(None, ("the process ended without an answer", words)))
        return self._ended(Fault("limits.died", evidence[:2000], last_words=words[:2000]))

    def _ended(self, fault: Fault) -> Fault:
        self.end()
        return fault


class ForkServer:
    """A forkserver and the workers it forks; keeps one spare worker ready."""

    def __init__(
        self, kind: str, limits: sandbox.Limits, warm: Warm | None = None, start: Start = AS_PROGRAM
    ) -> None:
        self._limits = limits
        self._warm = warm
        self._spare: WorkerHandle | None = None
        self._kind = kind
        self._start_process = start
        self._root = Path(tempfile.mkdtemp(prefix="egg-"))
        self._root.chmod(0o711)
        self._cache = self._root / "cache"
        self._start()

    def _start(self) -> None:
        self._root.mkdir(mode=0o711, exist_ok=True)
        ours, theirs = Channel.pair()
        arguments = (self._kind, str(self._cache), json.dumps(asdict(self._limits)))
        self._process = self._start_process(theirs, arguments, self._environment(), self._root)
        theirs.close()
        with contextlib.suppress(AttributeError):
            self._control.close()
        self._control = ours
        self._control.sock.settimeout(START_SECONDS)
        self._awake = False

    def _await_forkserver(self) -> None:
        """Wait for its imports only when a worker is needed: the oracle has other things to do meanwhile."""
        if self._process.poll() is not None:
            self._start()
        if self._awake:
            return
        try:
            self._control.receive()
        except (WireClosed, TimeoutError) as error:
            self.close()
            raise MachineError(
                f"the candidate processes cannot be started: {error}", "run `egg doctor`"
            ) from error
        self._awake = True

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        package_root = str(Path(egg.__file__).resolve().parent.parent)
        own = {
            "PYTHONPATH": package_root, "HOME": str(self._root), "USER": "egg", "LOGNAME": "egg",
            "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "random",
            "TRITON_DEFAULT_FP_FUSION": "1",
        }  # fmt: skip
        if KEPT_FOLDER in os.environ:
            own[KEPT_FOLDER] = os.environ[KEPT_FOLDER]
        return kept | own | ({"TRITON_INTERPRET": "1"} if self._kind == "interpret" else {})

    def worker(self, *, fence: bool = False) -> WorkerHandle:
        """A fresh process that has run no candidate; with ``fence`` its memory is fenced."""
        spare, self._spare = self._spare, None
        if spare is not None and self._process.poll() is not None:
            spare.end()  # it goes with its forkserver, which a candidate may have killed
        elif spare is not None:
            with contextlib.suppress(Fault):
                return self._ready(spare, fence)
        try:
            return self._ready(self._fork(), fence)
        except Fault as fault:
            raise MachineError(
                f"a candidate process cannot be made ready: {fault.evidence}", "run `egg doctor`"
            ) from fault

    def _ready(self, worker: WorkerHandle, fence: bool) -> WorkerHandle:
        try:
            worker.await_ready(START_SECONDS)
            if self._warm is not None:
                worker.ask(replace(self._warm, fence=fence), START_SECONDS)
        except BaseException:
            worker.end()
            raise
        return worker

    def prepare(self) -> None:
        """Start the next worker now, so that it is ready when it is asked for."""
        if self._spare is None:
            self._spare = self._fork()

    def _fork(self) -> WorkerHandle:
        self._await_forkserver()
        ours, theirs = Channel.pair()
        lifeline, their_end = socket.socketpair()
        reader, writer = os.pipe()
        try:
            self._control.send({"fork": True}, (theirs.fileno(), writer, their_end.fileno()))
            supervisor = int(self._control.receive()[0]["supervisor"])
        except (WireClosed, TimeoutError) as error:
            raise MachineError(f"the forkserver died: {error}", "run `egg doctor`") from error
        finally:
            theirs.close()
            their_end.close()
            os.close(writer)
        return WorkerHandle(ours, reader, supervisor, lifeline, self._limits)

    def close(self) -> None:
        if self._spare is not None:
            self._spare.end()
            self._spare = None
        with contextlib.suppress(AttributeError):
            self._control.close()
        with contextlib.suppress(PermissionError):  # of another user: it ends as its channel closes
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        shutil.rmtree(self._root, ignore_errors=True)


def forkserver_for(kind: str, device: str, start: Start = AS_PROGRAM) -> ForkServer:
    """For candidates on ``device``: on a GPU, in the interpreter, or for the compiler alone."""
    fraction = MEMORY_FRACTION if kind == "cuda" else None
    return ForkServer(kind, sandbox.limits_for(kind), Warm(device, kind != "compile", fraction), start)


def selectors_ready(fd: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(0))


def resident_bytes(pid: int) -> int:
    """Memory that a process occupies; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
