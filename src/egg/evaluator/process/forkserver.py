"""The prewarmed parent of candidate processes.

It imports torch, triton and the worker once, holds no secret and no CUDA context, and then
forks on request: a verdict does not wait for imports. Each fork is a *supervisor*, which forks
the worker, waits for it, and afterwards kills whatever the candidate may have started:
orphans come to the supervisor because it is their reaper, and where every candidate has a user
of its own, everything that user runs goes at once.

It may have more rights than the judge, which runs a task's code and is confined itself. So user,
folder and limits of a worker are chosen here, and a request says nothing but that there shall be one.

Run as ``python -m egg.evaluator.process.forkserver FD KIND CACHE LIMITS``.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from egg.evaluator.process import sandbox
from egg.evaluator.process.lasting import lasting
from egg.evaluator.transport.wire import Channel, WireClosed

ENDINGS = (signal.SIGTERM, signal.SIGCHLD)
SHARED_FOLDERS = ("/dev/shm", "/dev/mqueue")
KEPT_FOLDER = "EGG_KEPT_FOLDER"
"""Names the folder of a subreaper that may have been killed: the process that is left removes it."""
POLL_SECONDS = 0.02
"""Between two looks at whether a worker has ended."""
LEAVE_SECONDS = 5.0
"""For the supervisors to end when the forkserver does."""

Work = Callable[[Channel, list[str]], None]
"""What a worker does with its channel to the judge; it gets the list of its confinements."""


def begin(control: Channel, arguments: Sequence[str]) -> None:
    """Start from arguments as texts: what the workers are for, the cache's folder, and limits as JSON."""
    kind, cache, limits = arguments
    main(control, kind, cache, sandbox.Limits(**json.loads(limits)))


def main(control: Channel, kind: str, cache: str, limits: sandbox.Limits) -> None:
    """Fork workers until the oracle hangs up or dies; then remove the folder it can no longer remove."""

    def leave(*_: object, code: int = 0) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_supervisors()  # one that still furnishes a folder would make it anew
        for folder in (os.path.dirname(cache), os.environ.get(KEPT_FOLDER)):
            shutil.rmtree(folder or "", ignore_errors=True)
        os._exit(
            code
        )  # an exception could be raised into the middle of an import, and be taken for its failure

    signal.signal(signal.SIGTERM, leave)
    sandbox.die_with_parent(signal.SIGTERM)
    try:
        with contextlib.suppress(WireClosed):
            _fork_workers(control, kind, cache, limits)
    except BaseException:  # such as a folder that the other forkserver of a killed oracle has removed
        traceback.print_exc()
        leave(code=1)
    leave()


def _fork_workers(control: Channel, kind: str, cache: str, limits: sandbox.Limits) -> None:
    with lasting():
        work = _ready(kind, cache)

    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    control.send({"ready": True})
    for number in itertools.count(1):
        sock, output, lifeline = _next_request(control)
        scratch = os.path.join(os.path.dirname(cache), f"worker-{number}")
        kept = Place(scratch, cache, sandbox.free_uid(), limits)
        pid = os.fork()
        if pid == 0:
            control.close()
            run_and_exit(lambda k=kept, s=sock, o=output, a=lifeline: _supervisor(k, s, o, a, work))
        for fd in (sock, output, lifeline):
            os.close(fd)
        control.send({"supervisor": pid})


def _ready(kind: str, cache: str) -> Work:
    """What the workers do, with all imported that they need: a judge's worker, or ``module:function``."""
    if ":" in kind:
        module, _, name = kind.partition(":")
        return getattr(importlib.import_module(module), name)
    from egg.evaluator import worker
    from egg.evaluator.worker.prewarm import Kind, prewarm

    prewarm(Kind(kind), cache)
    return worker.main


def _end_supervisors() -> None:
    """Tell each supervisor to end what is below it, and wait for that."""
    own = os.getpid()
    for pid in (pid for pid, parent in _parents(own).items() if parent == own):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + LEAVE_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(POLL_SECONDS)


def _next_request(control: Channel) -> tuple[int, int, int]:
    while True:
        try:
            _, (sock, output, lifeline) = control.receive()
        except InterruptedError:
            continue
        return sock, output, lifeline


@dataclass(frozen=True)
class Place:
    """Where a worker lives, and within what."""

    scratch: str
    cache: str
    uid: int | None
    limits: sandbox.Limits


def _supervisor(place: Place, sock: int, output: int, lifeline: int, work: Work) -> None:
    """Fork the worker, outlive it, leave nothing behind.

    The end is announced by hanging up the lifeline, or by a signal (the forkserver's death); signals are
    waited for and never interrupt: a handler that forks while another does would deadlock.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    sandbox.die_with_parent(signal.SIGTERM)
    sandbox.adopt_orphans()
    os.setsid()
    _furnish(place.scratch, place.cache, place.uid)
    worker = os.fork()
    if worker == 0:
        os.close(lifeline)
        run_and_exit(lambda: _worker(place, sock, output, work))
    os.close(sock)
    os.close(output)
    while not has_ended(worker) and not _announced(lifeline):
        pass
    kill_descendants(place.uid)
    shutil.rmtree(place.scratch, ignore_errors=True)
    if place.uid is not None:
        sweep(place.uid)


def _announced(lifeline: int) -> bool:
    """Wait a moment; whether the end was announced meanwhile."""
    if select.select([lifeline], [], [], POLL_SECONDS)[0]:
        return True
    arrived = signal.sigtimedwait((signal.SIGTERM,), 0)
    return arrived is not None


def has_ended(pid: int) -> bool:
    """Whether a worker has ended; it is left to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _furnish(scratch: str, cache: str, uid: int | None) -> None:
    """A folder of the candidate's own, with a copy of what the forkserver compiled ahead."""
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    own = os.path.join(scratch, "triton")
    if os.path.isdir(cache):
        shutil.copytree(cache, own)
    if uid is not None:
        for folder, _, files in os.walk(scratch):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, uid, uid)


def _worker(place: Place, sock: int, output: int, work: Work) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    os.setsid()
    sandbox.die_with_parent(signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    scratch = place.scratch
    os.environ.update(
        HOME=scratch,
        TMPDIR=scratch,
        TRITON_CACHE_DIR=os.path.join(scratch, "triton"),
        TORCHINDUCTOR_CACHE_DIR=os.path.join(scratch, "inductor"),
    )
    tempfile.tempdir = scratch
    os.chdir(scratch)
    means = sandbox.confine(scratch, place.uid, place.limits)
    sandbox.die_with_parent(signal.SIGKILL)  # again: the kernel forgets it when the user changes
    work(_channel(sock), means)


def kill_descendants(uid: int | None) -> None:
    """SIGKILL every descendant, again and again until none is left."""
    for _ in range(200):
        victims = descendants(os.getpid())
        if not victims:
            return
        if uid is not None:
            _kill_user(uid)
        for pid in victims:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                return
        time.sleep(0.005)


def _kill_user(uid: int) -> None:
    """kill(-1) as that user reaches all its processes at once: a fork bomb cannot outrun it."""
    killer = os.fork()
    if killer == 0:
        run_and_exit(lambda: (os.setresuid(uid, uid, uid), os.kill(-1, signal.SIGKILL)))
    with contextlib.suppress(ChildProcessError):
        os.waitpid(killer, 0)


def sweep(uid: int, folders: Sequence[str] = SHARED_FOLDERS, keep: str = "") -> None:
    """Remove what a user left where others may write too, and where it outlives processes; not ``keep``."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != uid or entry.path == keep:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)


def descendants(root: int) -> list[int]:
    """Every process below ``root``: its children and theirs, those that only wait to be reaped by it too."""
    parents = _parents(root)
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found.extend(frontier)
    return found


def _parents(root: int) -> dict[int, int]:
    """The parent of every process that runs, and of those that wait to be reaped by ``root``."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
                if fields[0] != "Z" or int(fields[1]) == root:
                    parents[int(entry)] = int(fields[1])
    return parents


def run_and_exit(body: Any) -> None:
    """Run ``body`` in a forked worker that must never return into the parent's code."""
    code = 70
    try:
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _channel(fd: int) -> Channel:
    import socket

    return Channel(socket.socket(fileno=fd))


if __name__ == "__main__":
    begin(_channel(int(sys.argv[1])), sys.argv[2:])
