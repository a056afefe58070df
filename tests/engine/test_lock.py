"""One writer per run, told by the kernel: real processes hold, contend, die."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from egg.core.errors import UsageError
from egg.engine.lock import run_lock

HOLD = """
import subprocess, sys
from pathlib import Path
from egg.core.errors import UsageError
from egg.engine.lock import run_lock
try:
    with run_lock(Path(sys.argv[1])):
        {first}
        print("held", flush=True)
        sys.stdin.read()
except UsageError as error:
    print(error.message, flush=True)
"""


@contextmanager
def holder(folder: Path, first: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """A process that takes the lock and keeps it until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(first=first), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    folder = tmp_path / "softmax-7"
    folder.mkdir()
    with holder(folder) as first:
        assert heard(first) == "held"
        with pytest.raises(UsageError) as refused, run_lock(folder):
            pass
    assert f"run softmax-7 is being written by process {first.pid} on {socket.gethostname()} since 2" in str(
        refused.value
    )
    assert refused.value.hint


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        assert heard(first) == "held"
        first.kill()
        first.wait()
        with run_lock(tmp_path):
            assert f'"pid": {os.getpid()},' in (tmp_path / "lock").read_text()


def test_children_of_a_killed_holder_hold_nothing(tmp_path: Path) -> None:
    """What it started with exec does not inherit the lock, even if told to keep open files."""
    child = 'child = subprocess.Popen(["sleep", "30"], close_fds=False, stdout=subprocess.DEVNULL)'
    with holder(tmp_path, f"{child}; print(child.pid, flush=True)") as first:
        sleeper = int(heard(first))
        try:
            assert heard(first) == "held"
            first.kill()
            first.wait()
            os.kill(sleeper, 0)
            with run_lock(tmp_path):
                pass
        finally:
            os.kill(sleeper, 9)


def test_a_holder_that_ends_frees_it(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        assert heard(first) == "held"
        first.communicate("")
        assert first.returncode == 0
        with run_lock(tmp_path):
            pass


def test_of_many_that_try_at_once_one_gets_it(tmp_path: Path) -> None:
    folder = tmp_path / "contended"
    folder.mkdir()
    with holder(folder) as a, holder(folder) as b, holder(folder) as c:
        outcomes = [heard(process) for process in (a, b, c)]
    assert outcomes.count("held") == 1
    assert sum(words.startswith("run contended is being written by ") for words in outcomes) == 2


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        with pytest.raises(UsageError, match=f"process {os.getpid()} "), run_lock(tmp_path):
            pass
        with pytest.raises(UsageError, match=f"process {os.getpid()} "), run_lock(tmp_path):
            pass
    with run_lock(tmp_path):
        pass


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path):
        _ = 1 / 0
    with run_lock(tmp_path):
        pass


@pytest.mark.parametrize("words", ["", "{", "[1]", '{"pid": 1}', "\0\0\0", "17"])
def test_a_holder_that_left_no_readable_words_is_another_process(tmp_path: Path, words: str) -> None:
    with run_lock(tmp_path):
        (tmp_path / "lock").write_text(words)
        with pytest.raises(UsageError, match="is being written by another process"), run_lock(tmp_path):
            pass


def test_words_left_by_a_killed_holder_do_not_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1, "host": "elsewhere", "since": "2020-01-01T00:00:00Z"}')
    with run_lock(tmp_path):
        assert "elsewhere" not in (tmp_path / "lock").read_text()
    assert (tmp_path / "lock").read_text() == ""


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"), run_lock(tmp_path / "none"):
        pass
