"""Fixtures shared by the tests: a judge per test process, and a folder that shows what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from egg.core.evaluation import Evaluation, Gate
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.care import CARE, Care
from egg.evaluator.oracle import Oracle
from egg.evaluator.question import Question

PLANTED = "EGG_PLANTED_API_KEY"
"""An environment variable the harness has and no candidate may see."""

BRIEF = replace(CARE[Level.QUICK], call_seconds=20.0, build_seconds=30.0)
"""The care most tests ask for: quick, with limits that end a hung candidate soon."""

JudgeFunction = Callable[..., Evaluation]


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
            time.sleep(0.02)
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


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A temporary folder of its own for every process that a test starts, and a secret in its environment."""
    folder = Path(tempfile.mkdtemp(prefix="judged-"))
    folder.chmod(0o711)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv(PLANTED, "sk-nobody-may-see-this")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield Sandbox(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One judge on the CPU for all tests of this process."""
    judge = Oracle("cpu")
    yield judge
    judge.close()


@pytest.fixture
def judged(oracle: Oracle) -> JudgeFunction:
    """Ask the judge: sources in, an evaluation out."""

    def ask(
        task: str | Task,
        kernel: str | Candidate,
        policy: Policy | None = None,
        *,
        skip: tuple[Gate, ...] = (),
        care: Care = BRIEF,
        target: str | None = None,
    ) -> Evaluation:
        question = Question(
            task if isinstance(task, Task) else Task("small", task),
            kernel if isinstance(kernel, Candidate) else Candidate(kernel),
            policy or Policy(level=Level.QUICK),
            target,
            skip,
            care,
        )
        return oracle.judge(question)

    return ask
