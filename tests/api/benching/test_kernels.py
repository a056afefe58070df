"""Kernels of another system, judged: what is judged once, what again, and what stays behind. The judge is
played; the command line's own test asks the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.benching import kernels
from egg.api.benching.kernels import JudgedKernels, judge_kernels
from egg.api.benching.news import Ended, News, Opened
from egg.bench.row_files import read_rows
from egg.bench.rows import Row
from egg.bench.suites import Suite
from egg.core.errors import MachineError, TaskError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.facts import Family
from egg.core.policy import Level, Policy, Precision
from egg.evaluator.judge.pool import Answer, Job
from egg.hardware.detect import PresentGpu
from tests.bench.made import task
from tests.samples import measured, rejected

QUICK = Policy(level=Level.QUICK)


class Judge:
    """Stands in for the pool of oracles: accepts, unless told otherwise for a task."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.asked: list[str] = []
        self.says: dict[str, Callable[[Job], Answer]] = {}

    def __call__(self, devices: list[str], seats: int = 1) -> Judge:
        self.devices = devices
        return self

    def answers(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        for job in jobs:
            self.asked.append(job.id)
            yield self.says.get(job.id, accept)(job)

    def close(self) -> None:
        pass


def of(job: Job, sample: Evaluation) -> Answer:
    asked = job.question
    return Answer(
        job.id,
        replace(sample, **asked.identity),
    )


def accept(job: Job) -> Answer:
    return of(job, measured())


def refuse(job: Job) -> Answer:
    return of(job, rejected())


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    played = Judge()
    monkeypatch.setattr(kernels, "Pool", played)
    monkeypatch.setattr(kernels, "devices", lambda name: [name])
    monkeypatch.setattr(kernels, "family_of_task", lambda task: Family.POINTWISE)
    return played


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Kernels for problems 1 and 2 of three, and one for a problem that nobody asked for."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for problem in (1, 2, 9):
        write(folder, problem)
    return folder


def write(folder: Path, problem: int, text: str = "class ModelNew: ...\n", sample: int = 0) -> None:
    (folder / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(text)


SUITE = Suite("three", tuple(map(task, (1, 2, 3))), "here")


@pytest.fixture
def look(theirs: Path, tmp_path: Path) -> Callable[..., JudgedKernels]:
    def judge_them(policy: Policy = QUICK, suite: Suite = SUITE, **how) -> JudgedKernels:
        return judge_kernels(suite, theirs, policy, tmp_path / "out", device="cpu", **how)

    return judge_them


def kinds(rows: Iterable[Row]) -> dict[str, str]:
    return {row.key: row.verdict.kind for row in rows}


def test_every_task_has_a_row_and_kernels_for_others_are_named(judge, look, tmp_path):
    judge.says["1/2"] = refuse
    news: list[News] = []
    found = look(on_news=news.append)
    assert kinds(found.rows) == {"1/1": "accepted", "1/2": "refused", "1/3": "no kernel"}
    assert kinds(read_rows(tmp_path / "out" / "rows.jsonl")) == kinds(found.rows)
    assert found.without_task == ("level_1_problem_9_sample_0_kernel.py",)
    assert [path.name for path in (tmp_path / "out" / "kernels").iterdir()] == ["1_1.py"]
    assert isinstance(news[0], Opened)
    assert len(news[0].pending) == 3
    assert [row.row.key for row in news[1:] if isinstance(row, Ended)] == ["1/3", "1/1", "1/2"]
    assert found.rows[0].settings == {"kernels": "theirs", "sample": "0"}


def test_nothing_is_judged_twice_until_it_changes(judge, look, theirs, tmp_path):
    look()
    look()
    assert judge.asked == ["1/1", "1/2"]
    write(theirs, 1, "class ModelNew:\n    better = True\n")
    write(theirs, 3)
    judge.says["1/1"] = refuse
    found = look()
    assert judge.asked == ["1/1", "1/2", "1/1", "1/3"]
    assert kinds(found.rows) == {"1/1": "refused", "1/2": "accepted", "1/3": "accepted"}
    names = {path.name for path in (tmp_path / "out" / "kernels").iterdir()}
    assert names == {"1_2.py", "1_3.py"}, "a refused kernel does not stay behind as accepted"


def test_a_kernel_that_was_taken_away_is_missing_again(judge, look, theirs, tmp_path):
    look()
    (theirs / "level_1_problem_2_sample_0_kernel.py").unlink()
    assert kinds(look().rows)["1/2"] == "no kernel"
    assert [path.name for path in (tmp_path / "out" / "kernels").iterdir()] == ["1_1.py"]


def test_all_gpus_of_one_kind_judge_and_no_others(judge, theirs, tmp_path, monkeypatch):
    cards = [PresentGpu(n, name, "sm_90", 132, 0, 0, None) for n, name in enumerate(("H100", "L4", "H100"))]
    monkeypatch.setattr("egg.api.benching.devices.present_gpus", lambda: cards)
    news: list[News] = []
    judge_kernels(SUITE, theirs, QUICK, tmp_path / "out", device="auto", seats=2, on_news=news.append)
    assert judge.devices == ["cuda:0", "cuda:2"]
    assert isinstance(news[0], Opened)
    assert news[0].workers == 4


def test_what_the_machine_failed_is_tried_again(judge, look):
    judge.says["1/2"] = lambda job: Answer(job.id, error=MachineError("out of memory"))
    found = look()
    assert found.unable == ("1/2",)
    del judge.says["1/2"]
    again = look()
    assert again.unable == ()
    assert judge.asked == ["1/1", "1/2", "1/2"]


def test_a_task_that_cannot_be_judged_is_not_the_machines_fault(judge, look):
    judge.says["1/1"] = lambda job: Answer(job.id, error=TaskError("get_inputs() gives nothing"))
    found = look()
    assert found.unable == ()
    assert kinds(found.rows)["1/1"] == "no kernel"


def test_rows_before_an_interruption_are_kept(judge, look, tmp_path):
    def stop(job: Job) -> Answer:
        raise KeyboardInterrupt

    judge.says["1/2"] = stop
    with pytest.raises(KeyboardInterrupt):
        look()
    assert kinds(read_rows(tmp_path / "out" / "rows.jsonl")) == {"1/3": "no kernel", "1/1": "accepted"}
    del judge.says["1/2"]
    look()
    assert judge.asked == ["1/1", "1/2", "1/2"]


def test_samples_are_told_apart(judge, look, theirs):
    write(theirs, 3, sample=4)
    found = look(sample=4)
    assert judge.asked == ["1/3"]
    assert kinds(found.rows)["1/1"] == "no kernel"


def test_other_terms_other_tasks_and_benches_of_runs_are_refused(judge, look, tmp_path):
    look()
    for policy in (Policy(level=Level.FULL), Policy(Precision.TF32, level=Level.QUICK)):
        with pytest.raises(UsageError, match="another policy"):
            look(policy)
    with pytest.raises(UsageError, match="another choice of tasks"):
        look(suite=Suite("two", SUITE.tasks[:2], "here"))
    (tmp_path / "out" / "bench.json").write_text("{}")
    with pytest.raises(UsageError, match="a bench of runs"):
        look()
    assert judge.asked == ["1/1", "1/2"]
