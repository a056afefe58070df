"""The oracle's handles on the untrusted side: a :class:`Nursery` bears children, a :class:`Child` answers.

Whatever a child does wrong comes back as a :class:`Fault`: a value with a reason code and
evidence, which a gate turns into a refusal. Only a zygote that cannot be started is a
:class:`~egg.core.errors.MachineError`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import egg
from egg.core.errors import MachineError
from egg.evaluator.process import sandbox
from egg.evaluator.process.replies import fits, well_formed
from egg.evaluator.process.wire import Channel, WireClosed, WireGarbled
from egg.evaluator.process.zygote import spawn_request

ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)  # fmt: skip
START_SECONDS = 120.0
POLL_SECONDS = 0.05
MAX_REPLY = 8 << 20


class Fault(Exception):
    """What a candidate's process did wrong: a reason code and what was seen."""

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(f"{reason}: {evidence}")
        self.reason, self.evidence = reason, evidence


class Child:
    """One candidate process: ask it things under a deadline, then end it."""

    def __init__(
        self, channel: Channel, output: int, warden: int, scratch: Path, limits: sandbox.Limits
    ) -> None:
        self._channel = channel
        self._output = output
        self._warden = warden
        self._scratch = scratch
        self._limits = limits
        self._printed = bytearray()
        self._printed_total = 0
        self._sequence = 0
        self.alive = True
        self.pid = 0
        self.means: tuple[str, ...] = ()
        os.set_blocking(output, False)

    def greet(self, timeout: float) -> None:
        """Wait until the child is confined and ready."""
        hello = self._await_reply(0, time.monotonic() + timeout)
        self.pid, self.means = int(hello["pid"]), tuple(hello["sandbox"])

    def request(
        self, command: str, timeout: float, fds: tuple[int, ...] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Send one command and wait for its reply; raises :class:`Fault` for everything that goes wrong."""
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
            fault = reply["fault"]
            if not fits(fault, {str: str}):
                raise self._ended(
                    Fault("limits.protocol", "a fault was reported in a form that nobody speaks")
                )
            raise Fault(fault.get("reason", "candidate.error"), fault.get("evidence", "")[:4000])
        if not well_formed(command, reply):
            raise self._ended(
                Fault("limits.protocol", f"the reply to {command!r} has a form that nobody speaks")
            )
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
        with contextlib.suppress(OSError):
            os.kill(self._warden, signal.SIGTERM)
        self._channel.close()
        os.close(self._output)
        deadline = time.monotonic() + 10
        while _exists(self._warden) and time.monotonic() < deadline:
            time.sleep(0.002)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _await_reply(self, sequence: int, deadline: float) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(POLL_SECONDS)}
                if self._output in ready and not self._drain():
                    selector.unregister(self._output)
                if self._channel in ready:
                    reply = self._receive(deadline)
                    if reply.get("id") == sequence:
                        return reply
                    raise self._ended(Fault("limits.protocol", "a reply that nobody asked for was written"))
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

    def _watch(self, deadline: float) -> None:
        if time.monotonic() > deadline:
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
        said = f"; last words: {' | '.join(last)}" if last else ""
        return self._ended(Fault("limits.died", f"the process ended without an answer{said}"[:2000]))

    def _ended(self, fault: Fault) -> Fault:
        self.end()
        return fault


class Nursery:
    """A zygote and the children it bears; keeps one spare child ready."""

    def __init__(self, kind: str, limits: sandbox.Limits, warm: dict[str, Any]) -> None:
        self._limits = limits
        self._warm = warm
        self._born = 0
        self._spare: Child | None = None
        self._kind = kind
        self._root = Path(tempfile.mkdtemp(prefix="egg-"))
        self._root.chmod(0o711)
        self._cache = self._root / "cache"
        self._start()

    def _start(self) -> None:
        self._root.mkdir(mode=0o711, exist_ok=True)
        ours, theirs = Channel.pair()
        command = [
            sys.executable,
            "-m",
            "egg.evaluator.process.zygote",
            str(theirs.fileno()),
            self._kind,
            str(self._cache),
        ]
        self._process = subprocess.Popen(
            command,
            env=self._environment(),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            cwd=self._root,
        )
        theirs.close()
        with contextlib.suppress(AttributeError):
            self._control.close()
        self._control = ours
        self._control.sock.settimeout(START_SECONDS)
        self._awake = False

    def _await_zygote(self) -> None:
        """Wait for its imports only when a child is needed: the oracle has other things to do meanwhile."""
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
            "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
            "TRITON_DEFAULT_FP_FUSION": "1",
        }  # fmt: skip
        return kept | own | ({"TRITON_INTERPRET": "1"} if self._kind == "interpret" else {})

    def child(self, **warm: Any) -> Child:
        """A fresh process that has run no candidate, readied with ``warm`` too; the next starts meanwhile."""
        spare, self._spare = self._spare, None
        if spare is not None and self._process.poll() is not None:
            spare.end()  # it goes with its zygote, which a candidate may have killed
        elif spare is not None:
            with contextlib.suppress(Fault):
                return self._ready(spare, warm)
        try:
            return self._ready(self._bear(), warm)
        except Fault as fault:
            raise MachineError(
                f"a candidate process cannot be made ready: {fault.evidence}", "run `egg doctor`"
            ) from fault

    def _ready(self, child: Child, warm: dict[str, Any]) -> Child:
        try:
            child.greet(START_SECONDS)
            child.request("warm", START_SECONDS, **self._warm, **warm)
        except BaseException:
            child.end()
            raise
        return child

    def prepare(self) -> None:
        """Start the next child now, so that it is ready when it is asked for."""
        if self._spare is None:
            self._spare = self._bear()

    def _bear(self) -> Child:
        self._await_zygote()
        self._born += 1
        scratch = self._root / f"child-{self._born}"
        ours, theirs = Channel.pair()
        reader, writer = os.pipe()
        uid = sandbox.free_uid()
        try:
            self._control.send(
                spawn_request(str(scratch), str(self._cache), uid, self._limits), (theirs.fileno(), writer)
            )
            warden = int(self._control.receive()[0]["warden"])
        except (WireClosed, TimeoutError) as error:
            raise MachineError(f"the zygote died: {error}", "run `egg doctor`") from error
        finally:
            theirs.close()
            os.close(writer)
        return Child(ours, reader, warden, scratch, self._limits)

    def close(self) -> None:
        if self._spare is not None:
            self._spare.end()
            self._spare = None
        with contextlib.suppress(AttributeError):
            self._control.close()
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        shutil.rmtree(self._root, ignore_errors=True)


def selectors_ready(fd: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(0))


def _exists(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def resident_bytes(pid: int) -> int:
    """Memory that a process occupies; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
