"""Many evaluations as jobs: files in, files out, resumable, through the door a bare GPU machine uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from egg.core.errors import EggError, MachineError, TaskError, UsageError
from egg.core.evaluation import Evaluation, Gate
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator import __main__ as command_line
from egg.evaluator.judge import pool
from egg.evaluator.judge.batch import exit_code, run_batch
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import Answer, Job, read_jobs, run_jobs
from egg.evaluator.judge.question import Question
from tests import samples
from tests.conftest import BRIEF
from tests.leftovers import Sandbox

pytestmark = pytest.mark.usefixtures("new_oracles")
CORPUS = Path(__file__).parents[1] / "corpus"
TASK = CORPUS / "tasks" / "scale_shift.py"
QUICK = Policy(level=Level.QUICK)


def job(name: str, kernel: str, **terms) -> Job:
    question = Question(
        Task.from_file(TASK), Candidate.from_file(CORPUS / kernel), QUICK, settings=BRIEF, **terms
    )
    return Job(name, question)


def module(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "egg.evaluator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def finished(path: Path) -> set[str]:
    """Names of the jobs that have a verdict in the file."""
    return {row["job"] for row in rows(path) if "evaluation" in row}


class Scripted:
    """Stands for an oracle: answers as told, and remembers what happened to it."""

    def __init__(self, script):
        self.script = script
        self.asked: list[str] = []
        self.closed = 0

    def __call__(self, device: str) -> Scripted:
        return self

    def judge(self, question: Question) -> Evaluation:
        self.asked.append(question.candidate.name)
        answer = self.script(question.candidate.name, len(self.asked))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def start(self) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def named(*names: str) -> list[Job]:
    task = Task.from_file(TASK)
    return [Job(name, Question(task, Candidate("class ModelNew: pass", name))) for name in names]


def answers(monkeypatch, script, jobs) -> tuple[dict[str, Answer], Scripted]:
    oracle = Scripted(script)
    monkeypatch.setattr(pool, "Oracle", oracle)
    got: dict[str, Answer] = {}
    run_jobs(jobs, ["cpu"], lambda answer: got.__setitem__(answer.job, answer))
    return got, oracle


# files


def test_a_job_survives_the_trip_through_its_line(tmp_path):
    policy = Policy(Precision.TF32, LibraryCalls.FORBID, Level.AUDIT)
    question = Question(Task.from_file(TASK), Candidate("x = 1", "c"), policy, "A100", (Gate.STATIC,), BRIEF)
    path = tmp_path / "jobs.jsonl"
    path.write_text(Job("one", question).to_line() + "\n")
    assert read_jobs(path) == [Job("one", question)]


def test_a_job_that_an_older_version_wrote_is_read(tmp_path):
    """Its keys for the level settings and the contenders were others; neither may be lost without a word."""
    contender = Candidate("y = 2", "d")
    question = Question(
        Task.from_file(TASK), Candidate("x = 1", "c"), QUICK, settings=BRIEF, contenders=(contender,)
    )
    path = tmp_path / "jobs.jsonl"
    line = Job("one", question).to_line()
    path.write_text(line.replace('"settings":', '"care":').replace('"contenders":', '"rivals":') + "\n")
    assert '"care"' in path.read_text()
    assert read_jobs(path) == [Job("one", question)]


def test_the_short_form_is_a_job_too(tmp_path):
    path = tmp_path / "jobs.jsonl"
    row = {"task": {"name": "t", "code": TASK.read_text()}, "kernel": "x = 1", "policy": {"level": "quick"}}
    path.write_text(json.dumps({"job": "a", **row}) + "\n" + json.dumps(row) + "\n")
    first, second = read_jobs(path)
    assert (first.id, second.id) == ("a", "2")
    assert first.question.policy == QUICK
    assert first.question.candidate.source == "x = 1"


@pytest.mark.parametrize(
    "wrong",
    [
        "not json",
        "[1]",
        "3",
        "{}",
        '{"job": "a"}',
        '{"question": 3}',
        '{"question": {"task": {}}}',
        '{"task": {"name": "t", "code": "x = 1"}, "kernel": ""}',
        '{"task": {"name": "t"}, "kernel": ""}',
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path, wrong):
    path = tmp_path / "jobs.jsonl"
    path.write_text(f"{job('a', 'honest/scale_shift.py').to_line()}\n\n{wrong}\n")
    with pytest.raises(UsageError, match="line 3"):
        read_jobs(path)


def test_a_missing_jobs_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_jobs(tmp_path / "none.jsonl")


@pytest.mark.parametrize("evaluation", [samples.measured(), samples.compiled(), samples.rejected()])
def test_an_evaluation_survives_the_trip_through_json(evaluation):
    line = Answer("a", evaluation).to_line()
    assert Evaluation.from_json(json.loads(line)["evaluation"]) == evaluation


# scheduling


def test_every_job_gets_its_answer(monkeypatch):
    got, oracle = answers(monkeypatch, lambda *_: samples.rejected(), named("a", "b", "c"))
    assert set(got) == {"a", "b", "c"}
    assert oracle.closed >= 1


def test_a_dead_oracle_is_replaced_and_the_job_tried_again(monkeypatch):
    got, oracle = answers(
        monkeypatch, lambda _, n: MachineError("died") if n == 1 else samples.compiled(), named("a", "b")
    )
    assert oracle.asked == ["a", "a", "b"]
    assert got["a"].evaluation
    assert got["b"].evaluation


def test_a_job_that_always_kills_the_oracle_is_given_up_and_the_others_go_on(monkeypatch):
    got, oracle = answers(
        monkeypatch,
        lambda name, _: MachineError("died") if name == "a" else samples.compiled(),
        named("a", "b"),
    )
    assert oracle.asked == ["a", "a", "b"]
    assert isinstance(got["a"].error, MachineError)
    assert got["b"].evaluation


def test_a_wrong_task_is_not_tried_again(monkeypatch):
    got, oracle = answers(monkeypatch, lambda *_: TaskError("no Model"), named("a"))
    assert oracle.asked == ["a"]
    assert isinstance(got["a"].error, TaskError)


@pytest.mark.timeout(30)
def test_a_fault_of_ours_is_an_answer_and_not_a_hang(monkeypatch):
    got, _ = answers(monkeypatch, lambda *_: AssertionError("a bug"), named("a", "b"))
    assert "internal error" in str(got["a"].error)
    assert set(got) == {"a", "b"}


@pytest.mark.system
@pytest.mark.timeout(60)
def test_whoever_listens_may_stop_the_batch(monkeypatch):
    slow = threading.Event()
    oracle = Scripted(lambda *_: slow.wait(0.05) or samples.compiled())
    monkeypatch.setattr(pool, "Oracle", oracle)

    def listen(answer: Answer) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(named(*"abcdefgh"), ["cpu"], listen)
    assert len(oracle.asked) < 8
    assert oracle.closed >= 1


@pytest.mark.system
def test_every_seat_has_an_oracle_of_its_own_on_each_device(monkeypatch):
    made: list[str] = []
    meeting = threading.Barrier(4, timeout=180)

    class Seat(Scripted):
        def __init__(self, device: str):
            super().__init__(lambda *_: (meeting.wait(), samples.compiled())[1])
            made.append(device)

    monkeypatch.setattr(pool, "Oracle", Seat)
    got: list[str] = []
    run_jobs(named(*"abcd"), ["cuda:0", "cuda:1"], lambda answer: got.append(answer.job), seats=2)
    assert sorted(got) == list("abcd")
    assert sorted(made) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]


def verdict(question: Question) -> Evaluation:
    """A refusal of exactly this question, as a judge would give it."""
    return replace(samples.rejected(), **question.identity)


def test_results_are_written_as_they_come_and_a_torn_line_is_dropped(monkeypatch, tmp_path):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    every = named("a", "b", "c")
    jobs.write_text("".join(j.to_line() + "\n" for j in every))
    whole = Answer("a", verdict(every[0].question)).to_line()
    results.write_text(f"{whole}\n{whole[:60]}")
    oracle = Scripted(lambda *_: verdict(every[0].question))
    monkeypatch.setattr(pool, "Oracle", oracle)
    seen: list[tuple[str, int, int, set[str]]] = []

    def tell(answer: Answer, done: int, total: int) -> None:
        seen.append((answer.job, done, total, finished(results)))

    counts = run_batch(jobs, results, "cpu", tell)
    assert (counts["skipped"], counts["rejected"], exit_code(counts)) == (1, 2, 0)
    assert seen == [("b", 2, 3, {"a", "b"}), ("c", 3, 3, {"a", "b", "c"})]
    assert oracle.asked == ["b", "c"]
    assert run_batch(jobs, results, "cpu", tell)["skipped"] == 3
    assert oracle.asked == ["b", "c"]


@pytest.mark.parametrize("whole", ["0" * 64, ""], ids=["another file of that name", "an earlier version's"])
def test_a_verdict_on_a_name_alone_is_no_answer(monkeypatch, tmp_path, whole):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    [job] = named("a")
    jobs.write_text(job.to_line() + "\n")
    results.write_text(Answer("a", replace(verdict(job.question), candidate_sha256=whole)).to_line() + "\n")
    monkeypatch.setattr(pool, "Oracle", Scripted(lambda *_: verdict(job.question)))
    counts = run_batch(jobs, results, "cpu", lambda *_: None)
    assert (counts["skipped"], counts["rejected"]) == (0, 1)


@pytest.mark.parametrize("line", ["[1]", "7", '{"name": "a"}', '{"job": "a", "evaluation": {}}'])
def test_a_file_that_holds_something_else_is_named_and_left_alone(tmp_path, line):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    jobs.write_text(named("a")[0].to_line() + "\n")
    results.write_text(line + "\n")
    with pytest.raises(UsageError, match="line 1 is not a result"):
        run_batch(jobs, results, "cpu", lambda *_: None)
    assert results.read_text() == line + "\n"


def test_a_job_without_a_verdict_is_tried_by_the_next_run(monkeypatch, tmp_path):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    jobs.write_text("".join(j.to_line() + "\n" for j in named("a", "b")))
    fails: dict[str, EggError] = {"a": MachineError("no")}
    monkeypatch.setattr(pool, "Oracle", Scripted(lambda name, _: fails.get(name) or samples.compiled()))
    assert exit_code(run_batch(jobs, results, "cpu", lambda *_: None)) == 3
    fails.clear()
    assert exit_code(run_batch(jobs, results, "cpu", lambda *_: None)) == 0
    assert finished(results) == {"a", "b"}


# the door of a bare machine


@pytest.mark.system
def test_the_module_judges_a_file_of_jobs_and_goes_on_where_it_was(tmp_path, sandbox: Sandbox):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    honest = job("honest", "honest/scale_shift.py").to_line()
    cheat = job("cheat", "exploits/forges_result_file.py").to_line()
    jobs.write_text(f"{honest}\n{cheat}\n")
    done = module(jobs, results, "cpu")
    assert done.returncode == 0, done.stderr
    assert "[1/2] honest: accepted" in done.stderr
    assert "[2/2] cheat: rejected at static" in done.stderr
    judged = {row["job"]: Evaluation.from_json(row["evaluation"]) for row in rows(results)}
    assert judged["honest"].accepted
    assert not judged["cheat"].accepted
    assert Evaluation.from_json(judged["honest"].to_json()) == judged["honest"]

    before = results.read_text()
    results.write_text(before[:-30])
    again = module(jobs, results, "cpu")
    assert again.returncode == 0
    assert "cheat" in again.stderr
    assert "honest" not in again.stderr
    assert finished(results) == {"honest", "cheat"}
    assert sandbox.settles(lambda: not sandbox.processes())
    assert sandbox.folders() == []


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("", ("auto", 1)),
        ("cuda:1 --seats 2", ("cuda:1", 2)),
        ("--seats 3", ("auto", 3)),
        ("--seats 0", None),
        ("--seats x", None),
        ("--seats", None),
    ],
)
def test_seats_are_a_count(given, understood, monkeypatch):
    asked: list[tuple] = []
    monkeypatch.setattr(command_line, "run_batch", lambda *terms: asked.append(terms) or Counter())
    code = command_line.main(["jobs", "results", *given.split()])
    assert code == (0 if understood else 2)
    assert [(terms[2], terms[4]) for terms in asked] == ([understood] if understood else [])


@pytest.mark.system
@pytest.mark.parametrize("arguments", [(), ("one",), ("a", "b", "c", "d")])
def test_a_wrong_call_is_2(arguments):
    done = module(*arguments)
    assert done.returncode == 2
    assert "python -m egg.evaluator" in done.stderr


@pytest.mark.system
def test_a_missing_file_or_a_wrong_device_is_2_without_a_traceback(tmp_path):
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(job("a", "honest/scale_shift.py").to_line())
    for arguments in ((tmp_path / "none", tmp_path / "out"), (jobs, tmp_path / "out", "toaster")):
        done = module(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.system
def test_an_unusable_task_is_3_and_the_others_are_judged(tmp_path):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    broken = Task(
        "broken", TASK.read_text().replace("def get_inputs():", "def get_inputs():\n    return 1 / 0")
    )
    lines = [
        Job(
            "broken", Question(broken, Candidate.from_file(CORPUS / "honest/scale_shift.py"), QUICK)
        ).to_line(),
        job("cheat", "exploits/forges_result_file.py").to_line(),
    ]
    jobs.write_text("\n".join(lines))
    done = module(jobs, results, "cpu")
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
    assert finished(results) == {"cheat"}


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_batch_that_is_killed_leaves_no_process(tmp_path, sandbox: Sandbox, number):
    jobs, results = tmp_path / "jobs.jsonl", tmp_path / "results.jsonl"
    jobs.write_text(job("slow", "exploits/infinite_loop_host.py").to_line())
    command = [sys.executable, "-m", "egg.evaluator", str(jobs), str(results), "cpu"]
    batch = subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # A shell that runs the tests in the background may ignore SIGINT, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert sandbox.settles(lambda: _runs_candidate(sandbox), 120)
    batch.send_signal(number)
    assert batch.wait(30) == {signal.SIGINT: 130, signal.SIGKILL: -9}[number]
    assert sandbox.settles(lambda: not sandbox.processes(), 20), sandbox.processes()
    assert sandbox.settles(lambda: not sandbox.folders()), sandbox.folders()


def _runs_candidate(sandbox: Sandbox) -> bool:
    """Whether some candidate's process has its folder: then candidate code runs, or is about to."""
    return any(sandbox.folder.glob("**/worker-*/triton"))


# the handle on an oracle


@pytest.mark.system
def test_an_oracle_that_is_killed_is_a_machine_error_and_replaced(sandbox: Sandbox):
    question = job("a", "exploits/forges_result_file.py").question
    oracle = Oracle("cpu")
    try:
        assert not oracle.judge(question).accepted
        process, before = oracle._process, sandbox.folders()
        assert process is not None
        [judging] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(judging), signal.SIGSTOP)  # what runs below its subreaper, which is killed
        killer = threading.Timer(0.3, process.kill)
        killer.start()
        with pytest.raises(MachineError, match="died"):
            oracle.judge(question)
        assert not oracle.judge(question).accepted
        assert sandbox.settles(lambda: not set(before) & set(sandbox.folders()))
    finally:
        oracle.close()
    assert sandbox.settles(lambda: not sandbox.processes())
    assert sandbox.folders() == []


@pytest.fixture(scope="module")
def left_oracle() -> Iterator[Oracle]:
    """One that is left in the middle of questions and ends for it; the judge of all tests need not."""
    judge = Oracle("cpu")
    yield judge
    judge.close()


@pytest.mark.system
def test_an_interrupted_question_is_not_answered_later(left_oracle: Oracle):
    """The next question must not get the answer to the one whose asker went away."""

    def leave(gate: Gate) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        left_oracle.judge(job("a", "honest/scale_shift.py").question, leave)
    other = job("b", "exploits/forges_result_file.py").question
    assert left_oracle.judge(other).candidate_hash == other.candidate.hash


@pytest.mark.system
def test_an_evaluation_that_takes_too_long_is_a_machine_error(left_oracle: Oracle):
    started = time.monotonic()
    with pytest.raises(MachineError, match="in time"):
        left_oracle.judge(job("a", "exploits/infinite_loop_host.py").question, timeout=4.0)
    assert time.monotonic() - started < 120


@pytest.mark.system
def test_an_oracle_may_be_closed_by_two_threads_at_once() -> None:
    oracle = Oracle("cpu")
    oracle.start()
    together, faults = threading.Barrier(2), []

    def close() -> None:
        together.wait()
        try:
            oracle.close()
        except Exception as error:
            faults.append(error)

    closing = [threading.Thread(target=close) for _ in range(2)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    assert not faults
