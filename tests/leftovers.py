"""What a judge leaves behind: its processes and folders, found by where they keep their files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PLANTED = "EGG_PLANTED_API_KEY"
"""An environment variable the harness has and no candidate may see."""

POLL_SECONDS = 0.1
"""Between two looks: each reads what every process of the machine was started with."""


class Sandbox:
    """Where every process of a judge keeps its files, and so how to find what is left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def processes(self) -> list[int]:
        """Processes that name the folder: in their command line, environment or working directory."""
        mark = str(self.folder).encode()
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _names(entry, mark)]

    def confined(self) -> list[int]:
        """Those of them that run as a candidate's own user."""
        return [pid for pid in self.processes() if _uid(pid) >= 1_000_000_000]

    def folders(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    def settles(self, ready: Callable[[], bool], seconds: float = 10.0) -> bool:
        """Whether ``ready`` comes true soon: processes are reaped by others, a moment later."""
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True


def _names(entry: str, mark: bytes) -> bool:
    if int(entry) == os.getpid():
        return False
    for name in ("cmdline", "environ"):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{entry}/{name}").read_bytes():
                return True
    with contextlib.suppress(OSError):
        return mark in os.readlink(f"/proc/{entry}/cwd").encode()
    return False


def _uid(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


@contextlib.contextmanager
def sandboxed() -> Iterator[Sandbox]:
    """A temporary folder of its own for every process started meanwhile, and a secret in its environment."""
    folder = Path(tempfile.mkdtemp(prefix="judged-"))
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv(PLANTED, "sk-nobody-may-see-this")
        patch.setattr(tempfile, "tempdir", str(folder))
        yield Sandbox(folder)
    shutil.rmtree(folder, ignore_errors=True)
