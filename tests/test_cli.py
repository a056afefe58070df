"""The command line with the judge replaced: what is parsed, printed, and which code it ends with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg import __version__
from egg.cli import judging
from egg.cli.app import app
from egg.core.errors import MachineError, TaskError
from egg.core.evaluation import Evaluation
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge import batch as batch_files
from egg.evaluator.judge.pool import Answer, Job
from egg.evaluator.judge.question import Question
from tests import samples

EXAMPLES = Path(__file__).parents[1] / "examples"
SOFTMAX = str(EXAMPLES / "row_softmax" / "row_softmax.py")
FUSED = str(EXAMPLES / "row_softmax" / "fused.py")


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def judge(monkeypatch):
    """Puts a judge behind the door that answers as told and remembers what it was asked."""
    asked: list[tuple] = []

    def install(answer):
        def evaluate(task, candidate, policy, *, device, target, on_gate, on_printed):
            asked.append((task, candidate, policy, device, target))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(judging, "evaluate", evaluate)
        return asked

    return install


def test_version():
    result = egg("--version")
    assert (result.exit_code, result.stdout) == (0, f"egg {__version__}\n")


def test_accepted_is_0_and_the_terms_reach_the_judge(judge):
    asked = judge(samples.compiled())
    result = egg(
        *("eval", SOFTMAX, FUSED, "--level", "quick", "--precision", "tf32", "--library-calls", "forbid"),
        *("--device", "cuda:1", "--target", "h100"),
    )
    assert result.exit_code == 0
    assert "ACCEPTED" in result.stdout
    [(task, candidate, policy, device, target)] = asked
    assert (task.name, candidate.name) == ("row_softmax", "fused")
    assert policy == Policy(Precision.TF32, LibraryCalls.FORBID, Level.QUICK)
    assert (device, target) == ("cuda:1", "h100")


def test_defaults_are_full_match_allow(judge):
    asked = judge(samples.compiled())
    egg("eval", SOFTMAX, FUSED)
    assert asked[0][2:] == (Policy(Precision.MATCH, LibraryCalls.ALLOW, Level.FULL), "auto", None)


def test_rejected_is_1_with_gate_and_hint(judge):
    judge(samples.rejected())
    result = egg("eval", SOFTMAX, FUSED)
    assert result.exit_code == 1
    assert "REJECTED" in result.stdout
    assert "check the mask of the last block" in result.stdout


@pytest.mark.parametrize("sample", [samples.measured(), samples.compiled(), samples.rejected()])
def test_json_is_the_whole_evaluation(judge, sample):
    judge(sample)
    result = egg("eval", SOFTMAX, FUSED, "--json")
    assert result.exit_code == (0 if sample.accepted else 1)
    assert Evaluation.from_json(json.loads(result.stdout)) == sample


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (MachineError("no GPU", "use --device cpu"), 3, "machine"),
        (TaskError("Model() needs arguments", "see get_init_inputs"), 2, "usage"),
        (ValueError("ours"), 3, "internal"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_are_one_message_and_a_code(judge, error, code, kind):
    judge(error)
    result = egg("eval", SOFTMAX, FUSED)
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("egg: ")
    assert "Traceback" not in result.stderr
    printed = json.loads(egg("eval", SOFTMAX, FUSED, "--json").stdout)
    assert (printed["schema"], printed["error"]) == ("egg.error/1", kind)
    if isinstance(error, MachineError | TaskError):
        assert f"hint: {error.hint}" in result.stderr
        assert (printed["message"], printed["hint"]) == (error.message, error.hint)


def test_debug_shows_the_traceback_and_keeps_the_code(judge):
    judge(MachineError("no GPU"))
    result = egg("eval", SOFTMAX, FUSED, "--debug")
    assert result.exit_code == 3
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SOFTMAX, "absent.py"), "no such file: absent.py"),
        (("absent.py", FUSED), "no such file: absent.py"),
        ((SOFTMAX, SOFTMAX), "does not define ModelNew"),
        ((FUSED, FUSED), "does not define Model"),
        ((SOFTMAX, FUSED, "--device", "gpu"), "unknown device"),
        ((SOFTMAX, FUSED, "--target", "h300"), "unknown GPU"),
        ((SOFTMAX, FUSED, "--level", "sloppy"), "sloppy"),
        ((SOFTMAX,), "KERNEL"),
        (("absent.jsonl:1/2", FUSED), "no such file"),
    ],
)
def test_usage_mistakes_end_with_2_and_nothing_is_judged(judge, arguments, message):
    asked = judge(samples.compiled())
    result = egg("eval", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert asked == []


@pytest.fixture
def suite(tmp_path):
    source = Path(SOFTMAX).read_text()
    rows = [
        {"level": lv, "problem_id": i, "name": f"t{lv}_{i}", "code": source}
        for lv, i in [(1, 1), (1, 2), (2, 2)]
    ]
    path = tmp_path / "suite.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("spec", "name"), [(":1/2", "t1_2"), (":2/2", "t2_2"), (":L1/1", "t1_1"), (":1", "t1_1")]
)
def test_a_task_from_a_suite(judge, suite, spec, name):
    asked = judge(samples.compiled())
    assert egg("eval", f"{suite}{spec}", FUSED).exit_code == 0
    assert asked[0][0].name == name


@pytest.mark.parametrize(
    ("spec", "message"), [(":2", "means 2 tasks"), (":9/9", "no such task"), ("", "means 3 tasks")]
)
def test_a_task_not_in_a_suite(judge, suite, spec, message):
    judge(samples.compiled())
    result = egg("eval", f"{suite}{spec}", FUSED)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_broken_suite_line_is_named(judge, suite):
    judge(samples.compiled())
    suite.write_text(suite.read_text() + "{broken\n")
    result = egg("eval", f"{suite}:1/1", FUSED)
    assert result.exit_code == 2
    assert "line 4" in result.stderr


@pytest.fixture
def batch(monkeypatch, tmp_path):
    """``eval-batch`` over three fake jobs; ``outcomes`` says what becomes of each, ``ran`` which were run."""
    task, candidate = Task.from_file(Path(SOFTMAX)), Candidate.from_file(Path(FUSED))

    class Batch:
        def __init__(self):
            self.jobs = [Job(name, Question(task, candidate)) for name in "abc"]
            self.outcomes: dict = {}
            self.ran: list = []
            self.out = tmp_path / "sub" / "results.jsonl"

        def __call__(self, *more):
            self.ran.clear()
            lines = (job.to_line() + "\n" for job in self.jobs)
            (tmp_path / "jobs.jsonl").write_text("".join(lines))
            return egg("eval-batch", tmp_path / "jobs.jsonl", "--out", self.out, *more)

        def rows(self):
            return [json.loads(line) for line in self.out.read_text().splitlines()]

    def run_jobs(jobs, device_names, on_answer, seats):
        for job in jobs:
            fake.ran.append(job.id)
            outcome = fake.outcomes[job.id]
            if isinstance(outcome, KeyboardInterrupt):
                raise outcome
            failed = isinstance(outcome, MachineError)
            on_answer(Answer(job.id, error=outcome) if failed else Answer(job.id, outcome))

    fake = Batch()
    own = {"task_sha256": task.sha256, "candidate_sha256": candidate.sha256}
    accepted, refused = ({**e.to_json(), **own} for e in (samples.compiled(), samples.rejected()))
    fake.outcomes = {
        "a": Evaluation.from_json(accepted),
        "b": Evaluation.from_json(refused),
        "c": Evaluation.from_json(accepted),
    }
    monkeypatch.setattr(batch_files, "run_jobs", run_jobs)
    return fake


def test_a_batch_writes_one_line_a_job_and_ends_0_with_rejections_in_it(batch):
    result = batch("--json")
    assert result.exit_code == 0
    assert [(r["job"], r["evaluation"]["verdict"]["kind"]) for r in batch.rows()] == [
        ("a", "accepted"),
        ("b", "rejected"),
        ("c", "accepted"),
    ]
    assert json.loads(result.stdout) == {"jobs": 3, "skipped": 0, "accepted": 2, "rejected": 1}
    assert "[2/3] b: rejected at correctness" in result.stderr


def test_a_batch_goes_on_where_it_was(batch):
    batch.outcomes["b"] = KeyboardInterrupt()
    assert batch().exit_code == 130
    assert [r["job"] for r in batch.rows()] == ["a"]
    with batch.out.open("a") as torn:
        torn.write('{"job": "b", "evalua')
    batch.outcomes["b"] = batch.outcomes["a"]
    assert batch().exit_code == 0
    assert batch.ran == ["b", "c"]
    assert [r["job"] for r in batch.rows()] == ["a", "b", "c"]
    assert batch().exit_code == 0
    assert batch.ran == []


def test_a_machine_error_is_recorded_ends_3_and_is_tried_again(batch):
    good = batch.outcomes["b"]
    batch.outcomes["b"] = MachineError("the GPU fell off", "reset it")
    result = batch()
    assert result.exit_code == 3
    assert batch.rows()[1]["error"]["message"] == "the GPU fell off"
    assert len(batch.rows()) == 3
    batch.outcomes["b"] = good
    assert batch().exit_code == 0
    assert batch.ran == ["b"]


def test_a_changed_job_under_an_old_id_is_judged_anew(batch):
    assert batch().exit_code == 0
    asked = batch.jobs[0].question
    changed = Candidate(asked.candidate.source + "\nx = 1\n", "fused")
    batch.jobs = [
        Job("a", Question(asked.task, changed)),
        Job("b", Question(asked.task, asked.candidate, Policy(Precision.TF32))),
        batch.jobs[2],
    ]
    batch()
    assert batch.ran == ["a", "b"]


def test_job_ids_are_unique(batch):
    batch.jobs = [batch.jobs[0], batch.jobs[0]]
    result = batch()
    assert result.exit_code == 2
    assert "not unique" in result.stderr


@pytest.mark.parametrize("content", ["precious\n", "precious", '{"job": "a"}\nprecious'])
def test_a_results_file_that_is_something_else_is_left_alone(batch, content):
    batch.out.parent.mkdir()
    batch.out.write_text(content)
    assert batch().exit_code == 2
    assert batch.out.read_text() == content


SMALL_TASK = """
import torch
width = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.rand(8, width)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "code", "word"), [("torch.sin(9 * x)", 0, "SOUND"), ("x * 0", 1, "DEGENERATE")]
)
def test_audit_of_a_real_task(tmp_path, body, code, word):
    path = tmp_path / "small.py"
    path.write_text(SMALL_TASK.format(body=body))
    result = egg("audit", path, "--device", "cpu")
    assert result.exit_code == code
    assert word in result.stdout
    printed = json.loads(egg("audit", path, "--device", "cpu", "--json").stdout)
    assert printed["degenerate"] is bool(code)


def test_a_gpu_that_is_not_there_is_a_machine_error(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(SMALL_TASK.format(body="x"))
    result = egg("audit", path, "--device", "cuda:99")
    assert result.exit_code == 3
    assert "egg doctor" in result.stderr


@pytest.mark.parametrize("status", ["ok", "fail"])
def test_doctor_json_and_code(monkeypatch, status):
    from egg import doctor

    finding = doctor.Finding("disk", doctor.Status(status), "0 GiB free", "free some")
    monkeypatch.setattr(doctor, "gather", lambda: None)
    monkeypatch.setattr(doctor, "diagnose", lambda facts: (finding,))
    result = egg("doctor", "--json")
    assert result.exit_code == (3 if status == "fail" else 0)
    printed = json.loads(result.stdout)
    assert printed["able"] is (status == "ok")
    assert printed["findings"] == [
        {"name": "disk", "status": status, "detail": "0 GiB free", "mend": "free some"}
    ]


def test_what_asks_judges_does_not_load_torch():
    """Nor does what prints help: each of the processes of a bench or a cluster would pay two seconds."""
    modules = "egg.cli.app, egg.cli.runs, egg.api.benching.bench, egg.engine.cluster.bridge"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


SLOW = """
import sys, time
from egg.cli import judging
def evaluate(*a, **k):
    print("judging", file=sys.stderr, flush=True)
    try:
        time.sleep(60)
    finally:
        print("cleaned up", file=sys.stderr, flush=True)
judging.evaluate = evaluate
from egg.cli.app import main
sys.argv = ["egg", "eval", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_real_process_through_its_clean_up(number, code):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, SOFTMAX, FUSED],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
        # A shell that runs the tests in the background may ignore SIGINT, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "judging\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == code
    assert "cleaned up" in errors
    assert "Traceback" not in errors
