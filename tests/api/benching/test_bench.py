"""A bench: every task has one row, killed or not; what does not belong to it is refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egg.api.benching import bench as bench_module
from egg.api.benching import remote
from egg.api.benching.bench import BenchResult, load_bench, run_bench
from egg.api.benching.cost import Meter
from egg.api.benching.folder import run_folder
from egg.api.benching.manifest import kernels_of, read_manifest, suite_of
from egg.api.benching.news import Ended, Moved, News, Opened
from egg.bench.listing import key_of
from egg.bench.row_files import read_rows
from egg.bench.rows import NoKernel, Passed, Row, Spent, Unable, row_of
from egg.bench.suites import Suite
from egg.core.errors import UsageError
from egg.core.policy import Level
from egg.core.settings import Caps, ModelChoice
from egg.core.source import Task
from egg.engine.budgets import find_budget
from egg.engine.log import LOG
from tests.api.benching.following import Followed, deaf_to_ctrl_c
from tests.api.benching.pools import ScriptedPool
from tests.api.benching.runners import gone
from tests.api.benching.tasks import BROKEN, options, relu, suite

TWO = suite(relu(1), relu(2))


def bench(tasks: Suite, folder: Path, pool: ScriptedPool | None = None, **more: Any) -> BenchResult:
    under = more.pop("options", options())
    judges = pool or ScriptedPool()
    return run_bench(tasks, under, folder, workers=more.pop("workers", 1), environ={}, pool=judges, **more)


def interrupted_at_once(tasks: Suite, folder: Path, **more: Any) -> Opened:
    """A bench that ends before its first task begins; what it was about to do."""
    heard: list[News] = []

    def hear(news: News) -> None:
        heard.append(news)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        bench(tasks, folder, on_news=hear, **more)
    (opened,) = heard
    assert isinstance(opened, Opened)
    return opened


def keys_on_disk(folder: Path) -> Counter[str]:
    return Counter(json.loads(line)["key"] for line in (folder / "rows.jsonl").read_text().splitlines())


def log_of(folder: Path, number: int) -> bytes:
    return (run_folder(folder, relu(number)) / LOG).read_bytes()


# -- the whole way -------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_killed_in_the_middle_of_a_task_it_goes_on_from_there(tmp_path: Path) -> None:
    """With the real judge: no row is lost or doubled, no run begun anew, no process left."""
    rows = tmp_path / "rows.jsonl"
    first = Followed(tmp_path, "cpu", 1)
    first.until("ended 1/9", "moved 1/1 judging")
    while len(family := first.family()) < 3:  # a worker, its oracle, and multiprocessing's own
        time.sleep(0.01)
    first.process.send_signal(signal.SIGKILL)
    first.end()
    assert gone(family)
    assert keys_on_disk(tmp_path) == {"1/9": 1}
    finished, cut_off = rows.read_bytes(), log_of(tmp_path, 1)
    assert len(cut_off.splitlines()) > 2

    second = Followed(tmp_path, "cpu", 1)
    assert second.end() == ""
    assert second.lines[0] == "opened 1 1"
    assert second.lines[-1] == "finished"
    assert [line for line in second.lines if line.startswith("began")] == ["began 1/1 again"]
    assert keys_on_disk(tmp_path) == {"1/9": 1, "1/1": 1}
    assert rows.read_bytes().startswith(finished)
    assert log_of(tmp_path, 1).startswith(cut_off)
    broken, accepted = (row.verdict for row in read_rows(rows))
    assert isinstance(broken, NoKernel)
    assert isinstance(accepted, Passed)
    assert set(kernels_of(tmp_path)) == {accepted.kernel}


def test_a_worker_that_is_killed_is_replaced_and_ctrl_c_ends_the_next_quietly(tmp_path: Path) -> None:
    followed = Followed(tmp_path, "silent", 1)
    followed.until("moved 1/1 judging")
    (worker,) = followed.workers()
    begun = log_of(tmp_path, 1)
    os.kill(worker, signal.SIGKILL)
    followed.until("lost 1/1 True", "began 1/1 again")
    (other,) = followed.workers()
    assert other != worker
    followed.interrupt()
    assert followed.end() == "", "no process complains"
    assert followed.process.returncode == 0
    assert followed.lines[-1] == "interrupted 1/1"
    assert gone({worker, other})
    assert log_of(tmp_path, 1).startswith(begun)
    assert load_bench(tmp_path).missing == ("1/1",)


@pytest.mark.parametrize(("when", "how"), [("opened", "SIGINT"), ("began 1/1", "SIGTERM")])
def test_a_signal_ends_everything_and_loses_nothing(tmp_path: Path, when: str, how: str) -> None:
    """Also while processes are starting, and with a process on each of two tasks."""
    followed = Followed(tmp_path, "silent", 2)
    followed.until(when)
    while not followed.workers():
        time.sleep(0.01)
    assert all(map(deaf_to_ctrl_c, followed.workers())), "from its first moment on"
    family = followed.family()
    if how == "SIGINT":
        followed.interrupt()
    else:
        followed.process.send_signal(signal.SIGTERM)
    assert followed.end() == ""
    assert followed.process.returncode == 0
    assert followed.lines[-1] == "interrupted 1/1 1/2"
    assert gone(family)
    assert load_bench(tmp_path).missing == ("1/1", "1/2")
    log = tmp_path / "workers.log"
    assert "Traceback" not in (log.read_text() if log.exists() else "")


# -- through a pool ------------------------------------------------------------------------------------


def test_every_row_is_on_the_disk_before_it_is_told_and_the_folder_explains_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool loses the first kernel once, which is asked again, and the second whenever it comes."""
    monkeypatch.setattr(remote, "LOST_SECONDS", 0.5)
    pool = ScriptedPool(lambda job, before: (before == 0 and "1_Relu" in job.id) or "2_Relu" in job.id)
    tasks = suite(relu(1), replace(relu(2), level=2), BROKEN)
    news: list[News] = []

    def hear(found: News) -> None:
        news.append(found)
        if isinstance(found, Ended):
            assert found.row.key in keys_on_disk(tmp_path)

    result = bench(tasks, tmp_path, pool, on_news=hear)
    assert [row.key for row in result.rows] == ["1/1", "2/2", "1/9"]
    assert [type(row.verdict) for row in result.rows] == [Passed, Unable, NoKernel]
    assert result.rows[1].verdict == Unable("the pool has lost a kernel twice")
    assert "no_such_package" in str(result.rows[2].verdict)
    assert (result.missing, result.failed, result.interrupted) == ((), ("2/2",), False)
    assert keys_on_disk(tmp_path) == dict.fromkeys(("1/1", "2/2", "1/9"), 1)
    asked = Counter(name for name in pool.submitted if "1_Relu" in name)
    assert set(asked.values()) == {2}
    assert "closed" not in pool.submitted, "it is its owner's to close"
    assert [n.row.key for n in news if isinstance(n, Ended)] == ["2/2", "1/1", "1/9"], "long ones first"

    manifest = read_manifest(tmp_path)
    assert manifest.hash == tasks.hash
    assert manifest.tasks == {key: task.hash for key, task in tasks.by_key.items()}
    assert manifest.options.settings.device == "cuda", "where the pool judges"
    assert suite_of(tmp_path) == tasks
    assert load_bench(tmp_path).rows == result.rows
    assert set(kernels_of(tmp_path)) == {result.rows[0].kernel}

    assert bench(tasks, tmp_path) == result, "what was cut short is settled unless one asks for it"
    assert [task.name for task in interrupted_at_once(tasks, tmp_path, retry=True).pending] == ["2_Relu"]


def played(tasks: Sequence[Task], *_: object, may_begin: Any, on_news: Any, **__: object) -> Iterator[Row]:
    """In the workers' place: every task that may begin costs 40 cents, then 20 more."""
    for task in tasks:
        if may_begin():
            on_news(Moved(key_of(task), None, "asking designer", money=0.4))
            yield row_of(task, Unable("gone"), options().policy, spent=Spent(money=0.6))


def test_a_bench_that_has_cost_enough_begins_no_other_task_and_a_higher_limit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "rows_of", played)
    tasks = suite(*map(relu, range(1, 5)))
    result = bench(tasks, tmp_path, max_cost=1.0)
    assert result.missing == ("1/3", "1/4")
    assert result.over_cost == "$1.2000 of $1 are spent"
    assert bench(tasks, tmp_path, max_cost=1.2).missing == ("1/3", "1/4"), "what was paid before counts"
    result = bench(tasks, tmp_path, max_cost=2.0)
    assert (result.missing, result.over_cost) == ((), "")
    assert bench(tasks, tmp_path, max_cost=2.0, retry=True).over_cost == "$2.4000 of $2 are spent"


def test_what_tasks_in_flight_have_cost_counts_and_nothing_is_unpaid_by_a_fault() -> None:
    meter = Meter([row_of(relu(1), NoKernel("none"), options().policy, spent=Spent(money=0.5))], 2.0)
    meter.hear(Moved("1/1", None, "", money=0.7))
    meter.hear(Moved("1/2", None, "", money=1.0))
    assert meter.leaves_room()
    meter.hear(Moved("1/2", None, "", money=1.5))
    assert meter.reached == "$2.2000 of $2 are spent"
    meter.hear(Ended(row_of(relu(2), Unable("gone"), options().policy)))
    assert not meter.leaves_room()
    assert Meter([]).leaves_room()


def test_a_row_that_is_being_written_when_ctrl_c_comes_is_no_longer_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "rows_of", played)

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    def hear(news: News) -> None:
        if isinstance(news, Moved):
            monkeypatch.setattr(os, "fsync", interrupted)

    result = bench(TWO, tmp_path, on_news=hear)
    assert result.interrupted
    assert result.missing == ("1/2",)


# -- what does not belong ------------------------------------------------------------------------------


def test_other_terms_and_other_tasks_are_refused_with_what_differs(tmp_path: Path) -> None:
    interrupted_at_once(TWO, tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    was = options()
    changes: dict[str, Any] = {
        "seed: 0 before, 7 now": replace(was, settings=replace(was.settings, seed=7)),
        "budget name: sketch before, deep now": replace(
            was, settings=replace(was.settings, budget=find_budget("deep"))
        ),
        "caps minutes: none before, 3.0 now": replace(
            was, settings=replace(was.settings, caps=Caps(minutes=3.0))
        ),
        "level: full before, audit now": options(Level.AUDIT),
        "target: H200 before, A100": replace(was, settings=replace(was.settings, target="A100")),
    }
    for message, now in changes.items():
        with pytest.raises(UsageError) as caught:
            bench(TWO, tmp_path, options=now)
        assert message in caught.value.message
    for message, tasks in {
        "1 new: 1/3": suite(relu(1), relu(2), relu(3)),
        "1 missing: 1/2": suite(relu(1)),
        "1 changed: 1/2": suite(relu(1), replace(relu(2), source=relu(3).source)),
        "in another order": suite(relu(2), relu(1)),
    }.items():
        with pytest.raises(UsageError) as caught:
            bench(tasks, tmp_path)
        assert message in caught.value.message
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files, "nothing was touched"


def test_what_can_work_for_no_task_is_told_before_anything_is_written(tmp_path: Path) -> None:
    was = options().settings
    model = ModelChoice("openai", "m", "http://user:secret@localhost:1/v1")
    for settings, message in (
        (replace(was, team="step"), "go on by itself"),
        (replace(was, team="nobody"), "go on by itself"),
        (replace(was, team="llm"), "needs a model"),
        (replace(was, team="llm", model=model), "password"),
        (replace(was, device="offline"), "another machine"),
        (replace(was, target="Z9000"), "unknown GPU"),
    ):
        with pytest.raises(UsageError, match=message):
            bench(TWO, tmp_path / "bench", options=replace(options(), settings=settings))
    with pytest.raises(UsageError, match="0 workers"):
        bench(TWO, tmp_path / "bench", workers=0)
    unpriced = replace(was, team="llm", model=ModelChoice("openai", "m", "http://localhost:1/v1"))
    with pytest.raises(UsageError, match="no limit on cost can be kept"):
        bench(TWO, tmp_path / "bench", options=replace(options(), settings=unpriced), max_cost=9.0)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"other files: thesis\.tex"):
        bench(TWO, tmp_path)
    file = tmp_path / "thesis.tex"
    with pytest.raises(UsageError, match="cannot make"):
        bench(TWO, file / "bench")
    with pytest.raises(UsageError, match="no bench in"):
        load_bench(tmp_path)


def test_one_process_writes_a_bench(tmp_path: Path) -> None:
    def meddle(news: News) -> None:
        if isinstance(news, Opened):
            with pytest.raises(
                UsageError, match=f"bench {tmp_path.name} is being written by process {os.getpid()}"
            ):
                bench(TWO, tmp_path)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        bench(TWO, tmp_path, on_news=meddle)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"schema": "egg.bench/3"}',
        '{"schema": "egg.bench/1"}',
        '{"schema":"egg.bench/1","terms":3}',
    ],
)
def test_a_damaged_manifest_is_told_and_not_written_over(tmp_path: Path, damage: str) -> None:
    interrupted_at_once(TWO, tmp_path)
    (tmp_path / "bench.json").write_text(damage)
    with pytest.raises(UsageError, match="not the manifest of a bench"):
        bench(TWO, tmp_path)
    assert (tmp_path / "bench.json").read_text() == damage


def test_a_manifest_of_version_1_goes_on(tmp_path: Path) -> None:
    interrupted_at_once(TWO, tmp_path)
    path, before = tmp_path / "bench.json", read_manifest(tmp_path)
    text = path.read_text().replace('"options":', '"terms":').replace("egg.bench/2", "egg.bench/1")
    path.write_text(text.replace('"side_by_side":', '"heats":'))
    interrupted_at_once(TWO, tmp_path)
    assert read_manifest(tmp_path) == before
    assert '"terms":' in path.read_text()


def test_tasks_that_were_changed_afterwards_are_no_longer_those_of_the_bench(tmp_path: Path) -> None:
    interrupted_at_once(TWO, tmp_path)
    path = tmp_path / "tasks.jsonl"
    path.write_text(path.read_text().replace("2.0", "3.0"))
    with pytest.raises(UsageError, match="was changed since the bench began"):
        suite_of(tmp_path)
    path.write_text("{}")
    with pytest.raises(UsageError, match="cannot read the tasks"):
        load_bench(tmp_path)
