"""A confined process, and the one above it that clears up behind it.

A process that runs a task's code may be left in any state: ended by the task, with processes that it started
and never waited for, with files. So that process is forked from a *subreaper*, which runs no foreign code,
adopts every orphan below it, and outlives them all. When the process has ended, or on SIGTERM, the subreaper
kills whatever is left, removes the folder, and ends as the process did.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NoReturn

from egg.evaluator.process import sandbox
from egg.evaluator.process.forkserver import (
    ENDINGS,
    descendants,
    has_ended,
    kill_descendants,
    run_and_exit,
    sweep,
)

Body = Callable[[str, int | None], None]

POLL_SECONDS = 0.05
GRACE_SECONDS = 2.0
"""For the process to end after SIGTERM, and for what it left to end with it."""


def keep(body: Body, release: Callable[[], None], *, own_user: bool) -> NoReturn:
    """Run ``body`` in a process of its own, with a folder and, where it may be, a user; end as it ends.

    ``body`` gets both. It begins unconfined, so that it can start what needs more rights than it will have.
    ``release`` lets go, here, of what is the process's alone: who talks to it shall hear when it ends.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sandbox.die_with_parent(signal.SIGTERM)
    sandbox.adopt_orphans()
    folder = tempfile.mkdtemp(prefix="egg-")
    os.chmod(folder, 0o711)  # below it other users have folders of their own
    uid = sandbox.free_uid() if own_user else None
    process = os.fork()
    if process == 0:
        run_and_exit(lambda: _begin(body, folder, uid))
    release()
    _await(process)
    status = _reaped(process)
    _settle()
    kill_descendants(uid)
    if uid is not None:
        sweep(uid)
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(status if status >= 0 else 128 - status)


def _begin(body: Body, folder: str, uid: int | None) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    sandbox.die_with_parent(signal.SIGKILL)
    body(folder, uid)


def _await(process: int) -> None:
    """Wait until it has ended; pass SIGTERM on first, and kill soon after."""
    deadline = None
    while not has_ended(process):
        arrived = signal.sigtimedwait(ENDINGS, POLL_SECONDS)
        if arrived is not None and arrived.si_signo == signal.SIGTERM and deadline is None:
            os.kill(process, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)


def _reaped(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _settle() -> None:
    """What hangs on the process ends by itself, and clears up behind itself; give it a moment."""
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline:
        while _reap_one():
            pass
        if not any(_ours(pid) for pid in descendants(os.getpid())):
            return
        time.sleep(POLL_SECONDS / 2)


def _reap_one() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _ours(pid: int) -> bool:
    """Whether a process has the rights of this one: a forkserver, a supervisor. Others are not waited for."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False
