"""One writer per run: a lock that dies with its holder.

The lock is the kernel's (:mod:`egg.core.locks`), not the file's existence. What is written
inside the file only tells people who the holder is. Readers need no lock: the log grows by
whole lines and everything else in the folder is replaced atomically.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.locks import try_lock

LOCK = "lock"


class Locked(UsageError):
    """Another process writes it."""


@contextmanager
def run_lock(folder: Path, what: str = "run") -> Iterator[None]:
    """Be the only writer of the run (or ``what`` it is) in ``folder``; the error names another one."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        raise UsageError(f"no such folder: {folder}", f"check the path of the {what}") from None
    except OSError as error:
        raise UsageError(
            f"cannot write in {folder}: {error.strerror}", f"copy the {what} to a folder of your own"
        ) from None
    try:
        _take(handle, folder, what)
        try:
            _sign(handle)
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _take(handle: int, folder: Path, what: str) -> None:
    if not try_lock(handle, folder, "keep runs on a local disk, or mount it with locks"):
        raise Locked(
            f"{what} {folder.resolve().name} is being written by {_holder(handle)}",
            f"wait until it ends or stop that process; reading the {what} needs no lock",
        )


def _sign(handle: int) -> None:
    """Write the holder into the lock file. Done after taking it, so that no other process overwrites it."""
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(handle, 0)
    os.pwrite(handle, words.encode() + b"\n", 0)


def _holder(handle: int) -> str:
    """The holder in words. It may not have signed yet, or have been signing while we read."""
    try:
        words = json.loads(os.pread(handle, 4096, 0))
        return f"process {words['pid']} on {words['host']} since {words['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
