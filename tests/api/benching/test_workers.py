"""Processes that share out tasks: whatever becomes of a process, every task has one result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from egg.api.benching.news import Began, Lost, News
from egg.api.benching.workers import results_of
from egg.core.errors import MachineError
from egg.core.source import Task
from tests.api.benching.runners import Acting, Stillborn, acting, gone

ROOT = Path(__file__).resolve().parents[3]


def given_up(task: Task, reason: str) -> tuple[int, str]:
    return task.problem_id or 0, reason


def results(tasks: Sequence[Task], marks: Path, workers: int = 2, **more: Any) -> list[tuple[int, Any]]:
    return list(results_of(tasks, [Acting(marks)] * workers, given_up, **more))


def test_every_task_has_one_result_and_no_process_stays(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    log = tmp_path / "log"
    found = results([acting(n) for n in range(1, 8)], tmp_path, log=log)
    assert sorted(number for number, _ in found) == list(range(1, 8))
    pids = {pid for _, pid in found}
    assert 1 <= len(pids) <= 2
    assert gone(pids, seconds=0.0)
    assert log.read_text().count("a worker speaks") == 2
    assert capfd.readouterr() == ("", "")


def test_a_task_whose_process_dies_is_tried_once_more_and_then_given_up(tmp_path: Path) -> None:
    """Also where two tasks are the same program: each has its own lives. One dies while it speaks."""
    acts = ["die once", "die once", "raise", "die speaking"]
    news: list[News] = []
    log = tmp_path / "log"
    tasks = [acting(n, act) for n, act in enumerate(acts, 1)]
    found = dict(results(tasks, tmp_path, on_news=news.append, log=log))
    assert len(found) == len(acts)
    assert found[3] == "its process ended with exit code 1, 2 times"
    assert log.read_text().count("RuntimeError: a fault of the worker's own") == 2
    assert all(isinstance(found[n], int) for n in (1, 2, 4))
    lost = sorted((n.key, n.retried, n.reason.split()[-1]) for n in news if isinstance(n, Lost))
    assert lost == [
        ("1/1", True, "SIGKILL"),
        ("1/2", True, "SIGKILL"),
        ("1/3", False, "1"),
        ("1/3", True, "1"),
        ("1/4", True, "SIGKILL"),
    ]
    began = [n.key for n in news if isinstance(n, Began)]
    assert sorted(began) == ["1", "1", "2", "2", "3", "3", "4", "4"]


def test_a_task_that_takes_too_long_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = [acting(1, "sleep"), acting(2), acting(3)]
    started = time.monotonic()
    found = dict(results(tasks, tmp_path, workers=1, task_seconds=10.0))
    assert found[1] == "took more than 10 s"
    assert isinstance(found[2], int)
    assert isinstance(found[3], int)
    assert time.monotonic() - started < 150


def test_processes_that_cannot_start_end_the_bench_and_blame_no_task(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(MachineError, match="before they begin: exit code 1") as caught:
        list(results_of([acting(n) for n in range(1, 9)], [Stillborn()], given_up, log=log))
    assert str(log) in caught.value.hint
    assert log.read_text().count("there is no such device") == 3


def test_tasks_that_may_not_begin_have_no_result(tmp_path: Path) -> None:
    assert results([acting(1)], tmp_path, may_begin=lambda: False) == []


def test_leaving_early_ends_the_processes(tmp_path: Path) -> None:
    tasks = [acting(1), acting(2, "sleep")]
    coming = results_of(tasks, [Acting(tmp_path)] * 2, given_up, log=tmp_path / "log")
    _, pid = next(coming)
    coming.close()
    assert gone({int(pid)}, seconds=0.0)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from egg.api.benching.workers import results_of
from tests.api.benching.runners import Acting, acting

if __name__ == "__main__":
    tasks = [acting(1), acting(2, "linger"), acting(3, "sleep"), acting(4, "sleep")]
    marks = Path(sys.argv[1])
    for result in results_of(tasks, [Acting(marks)] * 2, lambda task, reason: (0, 0), log=marks / "log"):
        print(*result, flush=True)
"""


def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(SCRIPT.format(root=str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path)]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = {int(parent.stdout.readline().split()[1]) for _ in range(2)}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(pids)
