"""Commands in a cell: confined, ended in time, and nothing of them left, whatever they start."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from egg.evaluator.process import landlock
from egg.evaluator.process.confined import NOT_STARTED, Cell
from egg.evaluator.process.sandbox import Limits
from tests.leftovers import PLANTED, Sandbox

LIMITS = Limits(address_space=None, resident=200 << 20, output=1000)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
with_landlock = pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")


@pytest.fixture
def cell(sandbox: Sandbox) -> Iterator[Cell]:
    with Cell(LIMITS) as one:
        yield one
    assert sandbox.settles(lambda: not sandbox.processes()), "processes were left behind"
    assert sandbox.folders() == []


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_what_a_command_says_and_leaves(cell: Cell) -> None:
    cell.put("given", "hello")
    ended = cell.run(
        shell("cat given; echo wrong >&2; pwd; echo $MORE > left; exit 3"), 10, environment={"MORE": "x"}
    )
    assert (ended.code, ended.cut) == (3, "")
    assert ended.output.split() == ["hellowrong", str(cell.folder)]
    assert cell.take("left", 10) == b"x\n"


def test_a_cell_serves_several_commands(cell: Cell) -> None:
    assert cell.run(shell("echo 1 > kept"), 10).code == 0
    assert cell.run(shell("cat kept"), 10, watched=True).output == "1\n"


@as_root
@with_landlock
@pytest.mark.parametrize("watched", [False, True])
def test_confinement(cell: Cell, watched: bool) -> None:
    ended = cell.run(
        shell(f"id -u; ls /root /home; cat /etc/shadow; touch /etc/x /usr/x; echo secret ${PLANTED}; env"),
        10,
        watched=watched,
    )
    assert int(ended.output.splitlines()[0]) >= 1_000_000_000
    assert ended.output.count("denied") >= 4
    assert "sk-nobody" not in ended.output


def test_time_is_up(cell: Cell, sandbox: Sandbox) -> None:
    """Children in sessions of their own, orphaned and deaf to SIGTERM, go too."""
    start = time.monotonic()
    ended = cell.run(shell("trap '' TERM; (setsid sleep 300 &); setsid sleep 301 & sleep 302"), 1)
    assert (ended.cut, ended.code) == ("time", -9)
    assert time.monotonic() - start < 60
    assert not sandbox.confined()


def test_an_orphan_goes_with_the_command(cell: Cell, sandbox: Sandbox) -> None:
    start = time.monotonic()
    ended = cell.run(shell("(setsid sleep 300 &); echo done"), 20)
    assert (ended.code, ended.output) == (0, "done\n")
    assert time.monotonic() - start < 60, "the orphan holds the output open, and is not waited for"
    assert not sandbox.confined()


def test_too_much_memory(cell: Cell) -> None:
    eater = [sys.executable, "-c", "x = bytearray(600 << 20); import time; time.sleep(60)"]
    assert cell.run(eater, 20).cut == "memory"


def test_too_much_said(cell: Cell) -> None:
    ended = cell.run(shell("yes | head -c 3000000; exit 5"), 20)
    assert len(ended.output) == LIMITS.output
    assert ended.code == 5


def test_ended_by_a_signal(cell: Cell) -> None:
    assert cell.run(shell("kill -11 $$"), 10).code == -11


def test_not_a_command(cell: Cell) -> None:
    ended = cell.run(["/no/such/thing"], 10)
    assert ended.code == NOT_STARTED
    assert "No such file" in ended.output


def test_from_a_thread_beside_others(cell: Cell) -> None:
    """The asking process may be full of threads: nothing of ours runs in a fork of it."""
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(cell.run(shell("exit 4"), 20).code)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [4, 4, 4]


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ("ln -s /etc/passwd left", "left"),
        ("mkfifo left", "not a file"),
        ("mkdir left", "not a file"),
        ("head -c 2000 /dev/zero > left", "over the limit"),
        ("true", "No such file"),
    ],
)
def test_only_an_ordinary_file_is_taken(cell: Cell, made: str, complaint: str) -> None:
    assert cell.run(shell(made), 10).code == 0
    with pytest.raises(ValueError, match=complaint):
        cell.take("left", 1000)


def test_nothing_is_put_over_what_a_command_left(cell: Cell) -> None:
    cell.run(shell("ln -s /tmp/elsewhere job"), 10)
    with pytest.raises(FileExistsError):
        cell.put("job", "ours")
