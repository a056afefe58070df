"""The prewarmed parent of candidate processes.

It imports torch, triton and the worker once, holds no secret and no CUDA context, and then
forks on request: a verdict does not wait for imports. Each fork is a *warden*, which forks
the worker, waits for it, and afterwards kills whatever the candidate may have started:
orphans come to the warden because it is their reaper, and where every candidate has a user
of its own, everything that user runs goes at once.

Run as ``python -m egg.evaluator.process.zygote FD KIND CACHE``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from egg.evaluator.process import sandbox
from egg.evaluator.process.lasting import lasting
from egg.evaluator.process.wire import Channel, WireClosed

ENDINGS = (signal.SIGTERM, signal.SIGCHLD)
SHARED_FOLDERS = ("/dev/shm", "/dev/mqueue")


def main(control: Channel, kind: str, cache: str) -> None:
    """Bear children until the oracle hangs up or dies; then remove the folder it can no longer remove."""

    def leave(*_: object) -> None:
        shutil.rmtree(os.path.dirname(cache), ignore_errors=True)
        os._exit(0)  # an exception could be raised into the middle of an import, and be taken for its failure

    signal.signal(signal.SIGTERM, leave)
    sandbox.die_with_parent(signal.SIGTERM)
    with contextlib.suppress(WireClosed):
        _bear_children(control, kind, cache)
    leave()


def _bear_children(control: Channel, kind: str, cache: str) -> None:
    with lasting():
        from egg.evaluator import worker
        from egg.evaluator.worker.prewarm import Kind, prewarm

        prewarm(Kind(kind), cache)

    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    control.send({"ready": True})
    while True:
        try:
            request, (sock, output) = control.receive()
        except InterruptedError:
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            run_and_exit(lambda r=request, s=sock, o=output: _warden(r, s, o, worker.main))
        os.close(sock)
        os.close(output)
        control.send({"warden": pid})


def _warden(request: dict[str, Any], sock: int, output: int, work: Any) -> None:
    """Fork the worker, outlive it, leave nothing behind.

    The end may be announced twice (by the oracle, and by the zygote's death), so signals are
    waited for and never interrupt: a handler that forks while another does would deadlock.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    sandbox.die_with_parent(signal.SIGTERM)
    sandbox.adopt_orphans()
    os.setsid()
    uid, scratch = request["uid"], request["scratch"]
    _furnish(scratch, request["cache"], uid)
    worker = os.fork()
    if worker == 0:
        run_and_exit(lambda: _worker(request, sock, output, work))
    os.close(sock)
    os.close(output)
    while not has_ended(worker) and signal.sigwait(ENDINGS) != signal.SIGTERM:
        pass
    kill_descendants(uid)
    shutil.rmtree(scratch, ignore_errors=True)
    if uid is not None:
        sweep(uid)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is left to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _furnish(scratch: str, cache: str, uid: int | None) -> None:
    """A folder of the candidate's own, with a copy of what the zygote compiled ahead."""
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    own = os.path.join(scratch, "triton")
    if os.path.isdir(cache):
        shutil.copytree(cache, own)
    if uid is not None:
        for folder, _, files in os.walk(scratch):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, uid, uid)


def _worker(request: dict[str, Any], sock: int, output: int, work: Any) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    os.setsid()
    sandbox.die_with_parent(signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    scratch = request["scratch"]
    os.environ.update(
        HOME=scratch,
        TMPDIR=scratch,
        TRITON_CACHE_DIR=os.path.join(scratch, "triton"),
        TORCHINDUCTOR_CACHE_DIR=os.path.join(scratch, "inductor"),
    )
    tempfile.tempdir = scratch
    os.chdir(scratch)
    means = sandbox.confine(scratch, request["uid"], sandbox.Limits(**request["limits"]))
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
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
                if fields[0] != "Z" or int(fields[1]) == root:
                    parents[int(entry)] = int(fields[1])
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found.extend(frontier)
    return found


def run_and_exit(body: Any) -> None:
    """Run ``body`` in a forked child that must never return into the parent's code."""
    code = 70
    try:
        body()
        code = 0
    except BaseException:
        import traceback

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


def spawn_request(scratch: str, cache: str, uid: int | None, limits: sandbox.Limits) -> dict[str, Any]:
    return {"scratch": scratch, "cache": cache, "uid": uid, "limits": asdict(limits)}


if __name__ == "__main__":
    main(_channel(int(sys.argv[1])), sys.argv[2], sys.argv[3])
