"""One task: whatever task, kernel, team or machine do, it ends in a row; and a run is never begun twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egg.api.apart import ApartTeam
from egg.api.benching import one
from egg.api.benching.folder import kernel_file, place_of, run_folder
from egg.api.benching.one import row_given_up, run_task
from egg.api.benching.options import BenchOptions
from egg.bench.rows import NoKernel, Passed, Refused, Row, Unable
from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Gate, Refusal, Rejected
from egg.core.policy import Level
from egg.core.source import Candidate, Task, content_hash
from egg.engine.lock import run_lock
from egg.engine.log import LOG
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Job
from tests.api.benching.tasks import BROKEN, SEVERAL, options, relu

REFUSED = Refusal(Gate.CORRECTNESS, "correctness.values", "wrong from the first element on", "look at it")
GPU = options(device="cuda:0")


class Noting(ScriptedJudge):
    """Remembers at which level it was asked."""

    def __init__(self, milliseconds: float = 0.5, refusal: Refusal | None = None) -> None:
        super().__init__(lambda _: Act(milliseconds, refusal))
        self.levels: list[Level] = []

    def judge(self, jobs: Sequence[Job]):
        self.levels += [job.question.policy.level for job in jobs]
        yield from super().judge(jobs)


class Faster(Noting):
    """Every new file is a little faster than the one before; one that it knows takes as long as it did."""

    def __init__(self) -> None:
        super().__init__()
        times: dict[str, float] = {}
        self._act = lambda candidate: Act(times.setdefault(candidate.hash, 0.3 * 0.97 ** len(times)))


def run(task: Task, judge: Any, folder: Path, under: BenchOptions = GPU) -> Row:
    return run_task(task, under, folder, judge, {})


def without_times(row: Row) -> Row:
    return replace(row, spent=replace(row.spent, wall_seconds=0.0))


def test_an_accepted_kernel_has_its_row_its_run_and_its_file(tmp_path: Path) -> None:
    judge = Noting()
    row = run(relu(1), judge, tmp_path)
    assert judge.levels == [Level.QUICK, Level.FULL]
    assert isinstance(row.verdict, Passed)
    assert row.policy.level is Level.FULL
    assert row.run == "runs/1_1"
    assert (tmp_path / row.run / LOG).is_file()
    assert content_hash((tmp_path / "kernels" / "1_1.py").read_text()) == row.kernel
    assert row.settings == {"team": "expert", "budget": "sketch", "seed": "0"}
    assert row.spent.evaluations == 2
    assert row.verdict.structure is not None
    assert row.verdict.structure.kinds == ("Relu in one kernel",)
    assert row.verdict.diagnosis.startswith(f"{row.verdict.limiter}")
    again = run(relu(1), judge, tmp_path)
    assert len(judge.levels) == 2, "what was judged is not judged again"
    assert without_times(again) == without_times(row)


def test_at_quick_a_winner_that_was_chosen_is_judged_once_more_and_a_higher_level_goes_on(
    tmp_path: Path,
) -> None:
    judge = Faster()
    quick = replace(GPU, settings=options(device="cuda:0", budget="quick").settings, level=Level.QUICK)
    row = run(SEVERAL, judge, tmp_path, quick)
    assert set(judge.levels) == {Level.QUICK}
    assert [(step.stage, step.decision) for step in row.steps] == [("structure", "promoted")]
    assert row.spent.evaluations == len(judge.levels) == 3, "the seed, another structure, the last look"
    assert row.policy.level is Level.QUICK
    asked = len(judge.levels)
    assert without_times(run(SEVERAL, judge, tmp_path, quick)) == without_times(row)
    assert len(judge.levels) == asked, "the last look was kept"
    audit = run(SEVERAL, judge, tmp_path, replace(quick, level=Level.AUDIT))
    assert judge.levels[asked:] == [Level.FULL, Level.AUDIT]
    assert audit.policy.level is Level.AUDIT
    assert audit.kernel == row.kernel
    assert row.spent.final_seconds > 0
    assert [step.stage for step in row.steps]


def test_a_winner_that_the_audit_refuses_leaves_no_kernel(tmp_path: Path) -> None:
    class Strict(Noting):
        def _evaluation(self, job: Job):
            found = super()._evaluation(job)
            strict = job.question.policy.level is Level.AUDIT
            return replace(found, verdict=Rejected(REFUSED)) if strict else found

    assert run(relu(1), Strict(), tmp_path).accepted
    assert kernel_file(tmp_path, relu(1)).exists()
    row = run(relu(1), Strict(), tmp_path, replace(GPU, level=Level.AUDIT))
    assert isinstance(row.verdict, Refused)
    assert not kernel_file(tmp_path, relu(1)).exists()


def test_a_refused_kernel_says_at_which_gate(tmp_path: Path) -> None:
    row = run(relu(1), Noting(refusal=REFUSED), tmp_path)
    assert isinstance(row.verdict, Refused)
    assert row.verdict.gate is Gate.CORRECTNESS
    assert not row.cut_short


def test_a_task_that_does_not_load_is_a_row_and_not_worth_another_try(tmp_path: Path) -> None:
    row = run(BROKEN, Noting(), tmp_path)
    assert isinstance(row.verdict, NoKernel)
    assert "no_such_package" in row.verdict.reason
    assert not row.cut_short
    assert row.policy.level is Level.FULL


def test_a_machine_that_fails_is_tried_twice_and_a_later_try_goes_on(tmp_path: Path) -> None:
    tries = []

    class Broken(Noting):
        def judge(self, jobs: Sequence[Job]):
            tries.append(len(jobs))
            raise MachineError("the GPU fell off the bus", "push it back")
            yield

    row = run(relu(1), Broken(), tmp_path)
    assert row.verdict == Unable("the GPU fell off the bus")
    assert tries == [1, 1]
    assert row.cut_short
    begun = (tmp_path / row.run / LOG).read_bytes()
    assert run(relu(1), Noting(), tmp_path).accepted
    assert (tmp_path / row.run / LOG).read_bytes().startswith(begun), "resumed, and not begun anew"


def test_a_task_whose_process_is_gone_has_what_its_run_spent(tmp_path: Path) -> None:
    run(relu(1), Noting(), tmp_path)
    row = row_given_up(relu(1), GPU, tmp_path, "its process ended with SIGKILL, 2 times")
    assert row.verdict == Unable("its process ended with SIGKILL, 2 times")
    assert row.spent.evaluations == 2
    assert row.run == "runs/1_1"
    unknown = row_given_up(relu(2), GPU, tmp_path, "took more than 9 s")
    assert unknown.verdict == Unable("took more than 9 s")
    assert unknown.spent.evaluations == 0
    assert unknown.settings == row.settings


def test_a_team_with_a_fault_is_a_row_and_what_was_accepted_before_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("a fault of the team's")

    with monkeypatch.context() as patch:
        patch.setattr(ApartTeam, "seed", fault)
        row = run(relu(1), Noting(), tmp_path)
    assert row.verdict == NoKernel("ZeroDivisionError: a fault of the team's")
    assert "in fault" in row.notes["trace"]
    assert row.cut_short
    with monkeypatch.context() as patch:
        patch.setattr(ApartTeam, "design", fault)
        judge = Noting()
        under = replace(GPU, settings=options(device="cuda:0", budget="quick").settings)
        row = run(SEVERAL, judge, tmp_path, under)
    assert isinstance(row.verdict, Passed)
    assert judge.levels[-1] is Level.FULL, "judged with the care that the bench asked for"
    assert row.policy.level is Level.FULL
    assert row.cut_short


def test_a_fault_in_making_the_row_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise ArithmeticError("nothing adds up")

    monkeypatch.setattr(one, "row_of_run", fault)
    row = run(relu(1), Noting(), tmp_path)
    assert row.verdict == NoKernel("ArithmeticError: nothing adds up")
    assert row.cut_short
    given_up = row_given_up(relu(1), GPU, tmp_path, "took more than 9 s")
    assert given_up.verdict == Unable("took more than 9 s")
    assert "nothing adds up" in given_up.notes["trace"]
    monkeypatch.undo()
    assert run(relu(1), Noting(), tmp_path).accepted


def test_a_usage_error_of_the_world_is_unable_and_an_interrupt_passes(tmp_path: Path) -> None:
    class Refusing(Noting):
        error: BaseException = UsageError("the key was refused", "use another")

        def judge(self, jobs: Sequence[Job]):
            raise self.error
            yield

    assert run(relu(1), Refusing(), tmp_path).verdict == Unable("the key was refused")
    Refusing.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(relu(2), Refusing(), tmp_path)


def test_a_run_of_other_terms_or_with_a_damaged_log_is_left_alone(tmp_path: Path) -> None:
    run(relu(1), Noting(), tmp_path)
    other = replace(GPU, settings=replace(GPU.settings, seed=7))
    row = run(relu(1), Noting(), tmp_path, other)
    assert isinstance(row.verdict, Unable)
    assert "other options" in row.verdict.reason
    log = run_folder(tmp_path, relu(1)) / LOG
    text = "{}\n" + log.read_text()
    log.write_text(text)
    row = run(relu(1), Noting(), tmp_path)
    assert isinstance(row.verdict, Unable)
    assert "damaged" in row.verdict.reason
    assert log.read_text() == text


def test_it_waits_for_a_process_that_was_left_behind_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path, relu(1))
    folder.mkdir(parents=True)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with run_lock(folder):
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    monkeypatch.setattr(one, "LOCKED_SECONDS", 0.6)
    row = run(relu(1), Noting(), tmp_path)
    assert isinstance(row.verdict, Unable)
    assert "is being written by" in row.verdict.reason
    monkeypatch.setattr(one, "LOCKED_SECONDS", 20.0)
    threading.Timer(0.7, release.set).start()
    started = time.monotonic()
    assert run(relu(1), Noting(), tmp_path).accepted
    assert time.monotonic() - started > 0.5
    thread.join()


def test_names_in_paths_are_plain_and_no_two_the_same() -> None:
    plain = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    names = [
        "softmax",
        "1_3",
        "1_3~x",
        "..",
        ".hidden",
        "a/b",
        "/etc/passwd",
        "a" * 300,
        " ",
        "-rf",
        "Größe 2",
    ]
    tasks = [relu(3), *(Task(name, plain) for name in names)]
    places = [place_of(task) for task in tasks]
    assert places[:2] == ["1_3", "softmax"]
    assert len(set(places)) == len(places)
    for place in places:
        assert Path("runs", place).name == place
        assert len(place.encode()) < 250
        with suppress(FileNotFoundError):
            Path("/nowhere", place).stat()


def test_a_task_without_numbers_goes_by_its_name(tmp_path: Path) -> None:
    task = Task("softmax", relu(5).source)
    assert run(task, Noting(), tmp_path).run == "runs/softmax"
    assert Candidate.from_file(tmp_path / "kernels" / "softmax.py")
