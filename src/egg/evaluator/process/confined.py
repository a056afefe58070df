"""Commands that run candidate code under a tool of their own, confined and under a hard deadline.

A judged candidate is forked from a forkserver and talks to the judge; a profiler or a sanitizer has
to start its program itself. So here a whole command runs as the candidate would: a *supervisor* (this
file as a program) becomes the reaper of whatever is orphaned below it, forks, and the fork confines
itself and becomes the command. When the command ends, or its time or memory is used up, the supervisor
kills everything that is left below it, so that nothing outlives the call, whatever it started.
The supervisor goes down with us, and takes its command along.

The confinement is entered in a small process with one thread: the process that asks may be full of
threads (torch's), among which a fork that runs Python is not safe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import egg
from egg.evaluator.process import sandbox
from egg.evaluator.process.forkserver import (
    ENDINGS,
    SHARED_FOLDERS,
    descendants,
    has_ended,
    kill_descendants,
    run_and_exit,
    sweep,
)
from egg.evaluator.process.handle import ENVIRONMENT, resident_bytes

_CAPABILITY_V3 = 0x20080522
_DAC_READ_SEARCH = 2
_CAP_AMBIENT, _AMBIENT_RAISE = 47, 2

GRACE_SECONDS = 15.0
"""For the supervisor to clear up, beyond the command's own time."""
POLL_SECONDS = 0.1
NOT_STARTED = 127
"""As a shell says it: the command is not there, or is not one."""


@dataclass(frozen=True)
class Ended:
    """How a command came to its end."""

    code: int
    """Exit status; negative is the signal that ended it."""
    output: str
    """What it printed, errors too, as far as it may print."""
    cut: str = ""
    """What made us end it: ``time``, ``memory``, or nothing."""


class Cell:
    """A folder and a user of its own, in which commands of one candidate run one after another."""

    def __init__(self, limits: sandbox.Limits, prefix: str = "egg-cell-") -> None:
        self.limits = limits
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._uid = sandbox.free_uid()
        self._own(self.folder)

    def __enter__(self) -> Cell:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, name: str, text: str) -> None:
        """Leave a file for the commands. Only before the first one: afterwards the folder is theirs."""
        path = self.folder / name
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
        self._own(path)

    def take(self, name: str, limit: int) -> bytes:
        """What a command left; ``ValueError`` where that is no ordinary file of at most ``limit`` bytes.

        Candidate code wrote it, so it may be a link to a file it could not read, a pipe that
        never ends, or a terabyte.
        """
        try:
            handle = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror}") from None
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise ValueError(f"{name} is not a file")
        with os.fdopen(handle, "rb") as file:
            if found.st_size > limit:
                raise ValueError(f"{name} has {found.st_size} bytes, over the limit of {limit}")
            return file.read(limit)

    def run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        watched: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run ``command`` to its end, or end it after ``seconds``.

        ``watched``: a tool of NVIDIA's runs in there too, see :func:`sandbox.confine`.
        """
        work = {
            "command": list(command), "folder": str(self.folder), "uid": self._uid, "seconds": seconds,
            "watched": watched, "limits": asdict(self.limits), "environment": self._environment(environment),
        }  # fmt: skip
        reader, writer = os.pipe()
        # -P: the path of modules stays readable to the command; the working directory must not be in it
        program = [sys.executable, "-P", "-m", "egg.evaluator.process.confined", str(writer)]
        supervisor = subprocess.Popen(
            program, cwd="/", env={**_kept(), "TMPDIR": tempfile.gettempdir()}, pass_fds=(writer,),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        try:
            return self._wait_for(supervisor, work, reader, time.monotonic() + seconds + GRACE_SECONDS)
        finally:
            supervisor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(GRACE_SECONDS)
            if supervisor.poll() is None:
                supervisor.kill()
                supervisor.wait()
            assert supervisor.stdout is not None
            supervisor.stdout.close()
            os.close(reader)

    def _wait_for(
        self, supervisor: subprocess.Popen[bytes], work: dict[str, Any], reader: int, deadline: float
    ) -> Ended:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        with contextlib.suppress(BrokenPipeError), supervisor.stdin:
            supervisor.stdin.write(json.dumps(work).encode())
        printed = _drained(supervisor.stdout.fileno(), supervisor, deadline, self.limits.output)
        output = printed.decode(errors="replace")
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(max(0.1, deadline - time.monotonic()))
            os.set_blocking(reader, False)
            report = json.loads(os.read(reader, 4096) or b"{}")
        except (ValueError, OSError):
            report = {}
        return Ended(report.get("code", 70), output, report.get("cut", ""))

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        folder = str(self.folder)
        return {
            **_kept(), "HOME": folder, "USER": "egg", "LOGNAME": "egg", "TMPDIR": folder,
            "TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1", **(more or {}),
        }  # fmt: skip

    def _own(self, path: Path) -> None:
        if self._uid is not None:
            os.chown(path, self._uid, self._uid)


def _kept() -> dict[str, str]:
    """What of our environment a process of the untrusted side may know."""
    return {
        **{name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "PYTHONPATH": str(Path(egg.__file__).resolve().parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "random",
    }  # fmt: skip


def _drained(stream: int, supervisor: subprocess.Popen[bytes], deadline: float, limit: int) -> bytes:
    """The first ``limit`` bytes of a stream; read to its end, so that who writes never waits for us."""
    kept = bytearray()
    os.set_blocking(stream, False)
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            ended = supervisor.poll() is not None
            if not selector.select(0 if ended else POLL_SECONDS):
                if ended:
                    break
                continue
            data = os.read(stream, 1 << 16)
            if not data:
                break
            kept += data[: max(0, limit - len(kept))]
    return bytes(kept)


def supervisor(report: int, work: dict[str, Any]) -> None:
    """Fork the command, wait for its end or bring it about, leave nothing behind, say how it was."""
    os.set_inheritable(report, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    sandbox.die_with_parent(signal.SIGTERM)
    sandbox.adopt_orphans()
    command = os.fork()
    if command == 0:
        run_and_exit(lambda: _become(work))
    cut = _watch(command, work["seconds"], work["limits"]["resident"])
    code = _status(command) if not cut else -signal.SIGKILL
    kill_descendants(work["uid"])
    if work["uid"] is not None:
        shared = (tempfile.gettempdir(),) if work["watched"] else ()
        sweep(work["uid"], (*SHARED_FOLDERS, *shared), keep=work["folder"])
    os.write(report, json.dumps({"code": code, "cut": cut}).encode())


def _become(work: dict[str, Any]) -> None:
    """Confine this process and turn it into the command."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(work["folder"])
    sandbox.confine(work["folder"], work["uid"], sandbox.Limits(**work["limits"]), watched=work["watched"])
    sandbox.die_with_parent(signal.SIGKILL)
    if work["uid"] is not None and sandbox.reads_everything():
        _keep_reading()
    try:
        os.execvpe(work["command"][0], work["command"], work["environment"])
    except OSError as error:
        print(f"{work['command'][0]}: {error.strerror}", flush=True)
        os._exit(NOT_STARTED)


def _keep_reading() -> None:
    """Take along the one capability that confinement left, to read files that Landlock permits.

    Becoming another program drops capabilities, unless they are inheritable and ambient; without this
    one an interpreter below a private home could not read itself. Where the kernel declines, it is so.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    if libc.capset(header, struct.pack("IIIIII", *[1 << _DAC_READ_SEARCH] * 3, 0, 0, 0)) == 0:
        libc.prctl(_CAP_AMBIENT, _AMBIENT_RAISE, _DAC_READ_SEARCH, 0, 0)


def _watch(command: int, seconds: float, resident: int) -> str:
    """Wait until the command has ended by itself; else say what there is too much of."""
    deadline = time.monotonic() + seconds
    while not has_ended(command):
        if time.monotonic() > deadline:
            return "time"
        if sum(map(resident_bytes, descendants(os.getpid()))) > resident:
            return "memory"
        arrived = signal.sigtimedwait(ENDINGS, POLL_SECONDS)
        if arrived is not None and arrived.si_signo == signal.SIGTERM:
            return "time"
    return ""


def _status(command: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])


if __name__ == "__main__":
    supervisor(int(sys.argv[1]), json.load(sys.stdin))
