"""Runs from the command line: begun, stepped by hand, judged elsewhere, interrupted, resumed, replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.api import offline, optimizing
from egg.cli.app import app
from egg.core.errors import MachineError
from egg.core.stage import Category
from egg.engine.budgets import BUDGETS
from egg.engine.lock import run_lock
from egg.engine.scripted import ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job, read_jobs
from tests.engine import scripts
from tests.engine.logs import sample_events, write_log
from tests.engine.scripts import FACTS, FULL, TASK, act, go_on, kernel
from tests.report.made import many_rows

ROOT = Path(__file__).parents[1]
STEP = ("--team", "step", "--device", "offline", "--budget", "quick", "--target", "H200")


def egg(*arguments: object, stdin: str | None = None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No torch is needed to begin a run, and none of these tests writes into the repository."""
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "double.py"
    path.write_text(TASK.source)
    return path


def fenced(source: str) -> str:
    return f"Here it is.\n\n```python\n{source}\n```\n"


def plan(category: Category, change: str, speedup: float = 1.5) -> str:
    return json.dumps(
        {
            "bottleneck": "too slow",
            "worth_optimizing": True,
            "category": category.value,
            "change": change,
            "predicted_speedup": speedup,
            "metric": "time",
            "expectation": "less of it",
            "skill": None,
            "reason": None,
        }
    )


def nothing(reason: str = "it is as good as it gets") -> str:
    return json.dumps({"bottleneck": "none", "worth_optimizing": False, "reason": reason})


class Run:
    """A step run in a folder, driven as a person would: verb by verb."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs, self.results = folder.parent / "jobs.jsonl", folder.parent / "results.jsonl"

    def next(self) -> dict:
        result = egg("next", self.folder, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def reply(self, text: str, *more: str):
        return egg("reply", self.folder, "--file", "-", *more, stdin=text)

    def judge(self, answer: Callable[[Job], Answer] | None = None):
        """Carry the jobs to a scripted machine and the answers back."""
        assert egg("pending", self.folder, "--out", self.jobs).exit_code == 0
        lines = [(answer or judged)(job).to_line() for job in read_jobs(self.jobs)]
        self.results.write_text("".join(f"{line}\n" for line in lines))
        return egg("results", self.folder, self.results)


def judged(job: Job) -> Answer:
    ((name, evaluation),) = ScriptedJudge(act).judge([job])
    return Answer(name, evaluation)


@pytest.fixture
def begun(task: Path, tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    result = egg("optimize", task, *STEP, "--out", run.folder)
    assert result.exit_code == 0, result.output
    return run


@pytest.fixture
def ended(begun: Run) -> Run:
    """A run that ended after one step, without anything to return."""
    begun.reply(fenced(kernel("2.0 ms")))
    begun.judge()
    while begun.next()["waiting"] == "reply":
        begun.reply(nothing())
    assert begun.judge().exit_code == 1
    return begun


TRAJECTORY = [
    ("coder.seed", fenced(kernel("2.0 ms")), 1),
    ("designer", plan(Category.OPERATOR_FUSION, "fuse the product into the load"), 0),
    ("coder.optimize", fenced('# edit: replace SAYS\nSAYS = "1.0 ms"\n'), 1),
    ("designer", nothing("one kernel, one pass"), 0),
    ("tuner.mapping", plan(Category.WORK_PER_PROGRAM, "two blocks a program"), 0),
    ("coder.optimize", fenced(kernel("refuse correctness", body="x + x")), 1),
    ("debugger", json.dumps({"critical_issue": "no mask", "modification_plan": "mask it"}), 0),
    ("coder.repair", fenced(kernel("0.8 ms")), 1),
    ("tuner.tiling", plan(Category.TILE_SHAPE, "leave the block open"), 0),
    (
        "coder.optimize",
        fenced(kernel("25.6 / BLOCK + 0.5 ms", extra='TUNABLES = {"BLOCK": (64, 128, 256)}')),
        1,
    ),
    ("tuner.memory", nothing(), 0),
]


def test_a_whole_step_run_judged_elsewhere(begun):
    for purpose, reply, evaluations in TRAJECTORY:
        asked = begun.next()
        while asked["waiting"] == "evaluations":  # those of a sweep
            assert asked["messages"] == []
            assert begun.judge().exit_code == 0
            asked = begun.next()
        assert (asked["waiting"], asked["purpose"], asked["jobs"]) == ("reply", purpose, 0)
        assert asked["messages"][-1]["speaker"] == "user"
        assert (asked["schema"] is None) == purpose.startswith("coder")
        result = begun.reply(reply)
        assert result.exit_code == 0, result.output
        if evaluations:
            assert begun.next()["jobs"] == evaluations
            assert begun.judge().exit_code == 0
    regraded = begun.judge()
    assert regraded.exit_code == 0, regraded.output
    assert "ended, faster: 1.67 times the speed of eager PyTorch" in regraded.stdout
    assert begun.next()["waiting"] is None

    told = json.loads(egg("resume", begun.folder, "--json").stdout)
    assert (told["verdict"], told["waiting"], told["folder"]) == ("faster", None, str(begun.folder))
    assert [(row["stage"], row["promoted"]) for row in told["stages"]] == [
        ("seed", 1),
        ("structure", 1),
        ("mapping", 1),
        ("tiling", 1),
        ("memory", 0),
    ]
    summary = egg("resume", begun.folder)
    assert summary.exit_code == 0
    for wanted in (" FASTER ", "over eager", "1.67x (1.67 to 1.67)", "every stage is done", "kernel.py"):
        assert wanted in summary.stdout
    assert "BLOCK = 256" in (begun.folder / "kernel.py").read_text()

    replayed = egg("replay", begun.folder)
    assert replayed.exit_code == 0, replayed.output
    for wanted in ("operator_fusion", "1.50x", "2.00x", "promoted", "beyond the noise", "no model called"):
        assert wanted in replayed.stdout
    story = json.loads(egg("replay", begun.folder, "--json").stdout)
    assert story["reproduced"] is True
    assert [row["decision"] for row in story["story"]].count("promoted") == 4


def test_the_question_reads_as_markdown_with_the_kind_of_reply(begun):
    shown = egg("next", begun.folder).stdout
    assert shown.startswith("# coder.seed\n\n## system\n\n")
    assert "return x * 2" in shown
    assert "a whole kernel file" in shown
    assert f"egg reply {begun.folder} --file" in shown
    begun.reply(fenced(kernel("2.0 ms")))
    assert "waits for 1 evaluation" in egg("next", begun.folder).stdout
    begun.judge()
    assert '"predicted_speedup"' in egg("next", begun.folder).stdout.rpartition("of this schema")[2]


def test_a_reply_of_the_wrong_form_is_asked_for_again_with_the_reason(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    begun.judge()
    result = begun.reply("I would fuse everything.")
    assert result.exit_code == 0
    asked = begun.next()
    assert asked["purpose"] == "designer"
    assert asked["messages"][-2] == {"speaker": "assistant", "text": "I would fuse everything."}
    assert "no JSON object was found" in asked["messages"][-1]["text"]
    assert begun.reply(nothing()).exit_code == 0
    assert begun.next()["purpose"] == "tuner.mapping"


def test_an_edit_that_cannot_be_applied_is_asked_for_again_with_the_reason(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    begun.judge()
    begun.reply(plan(Category.OPERATOR_FUSION, "fuse the product into the load"))
    assert begun.reply(fenced("# edit: replace DOUBLE\nDOUBLE = 3\n")).exit_code == 0
    asked = begun.next()
    assert asked["purpose"] == "coder.optimize"
    assert "`replace DOUBLE`: the file has no definition of that name" in asked["messages"][-1]["text"]
    begun.reply(fenced('# edit: replace SAYS\nSAYS = "1.0 ms"\n'))
    assert begun.judge().exit_code == 0
    answers = [json.loads(line)["event"] for line in (begun.folder / "events.jsonl").read_text().splitlines()]
    draft = next(a["answer"] for a in answers if a.get("role") == "coder.optimize")
    assert [(edit["operation"], edit["target"]) for edit in draft["edits"]] == [("replace", "SAYS")]
    assert draft["source"].strip() == kernel("1.0 ms").strip()
    assert egg("replay", begun.folder).exit_code == 0


def test_a_log_that_ends_between_a_wrong_reply_and_its_correction_replays(begun):
    begun.reply("no kernel at all")
    replayed = egg("replay", begun.folder)
    assert (replayed.exit_code, "unfinished" in replayed.stdout) == (0, True), replayed.output


def test_a_reply_from_a_file_and_what_cannot_be_one(begun, tmp_path):
    before = (begun.folder / "events.jsonl").read_bytes()
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "blank").write_text(" \n")
    for file, said in (("absent", "no such file"), ("binary", "UTF-8"), ("blank", "empty")):
        result = egg("reply", begun.folder, "--file", tmp_path / file)
        assert (result.exit_code, said in result.stderr) == (2, True)
    assert (begun.folder / "events.jsonl").read_bytes() == before
    (tmp_path / "good.md").write_text(fenced(kernel("2.0 ms")))
    assert egg("reply", begun.folder, "--file", tmp_path / "good.md").exit_code == 0


def test_verbs_in_the_wrong_order_change_nothing_and_name_the_right_one(begun, tmp_path):
    log = begun.folder / "events.jsonl"
    jobs = tmp_path / "jobs.jsonl"
    before = log.read_bytes()
    result = egg("pending", begun.folder, "--out", jobs)
    assert (result.exit_code, jobs.read_text()) == (0, "")
    assert "waits for a reply as coder.seed" in result.stdout
    begun.results.write_text("")
    assert "waits for a reply" in egg("results", begun.folder, begun.results).stdout
    assert log.read_bytes() == before

    begun.reply(fenced(kernel("2.0 ms")))
    before = log.read_bytes()
    result = begun.reply(nothing())
    assert result.exit_code == 2
    assert "waits for no reply" in result.stderr
    assert "egg pending" in result.stderr
    resumed = egg("resume", begun.folder)
    assert (resumed.exit_code, "waits for 1 evaluation" in resumed.stdout) == (0, True)
    assert log.read_bytes() == before


def test_a_reply_after_the_end_is_refused_and_the_reference_is_returned(ended):
    assert "it has ended" in ended.reply("more").stderr
    summary = egg("resume", ended.folder)
    assert summary.exit_code == 1
    assert "the reference is returned: nothing beats the reference beyond the noise" in summary.stdout
    assert "ModelNew = Model" in (ended.folder / "kernel.py").read_text()


def test_results_for_another_kernel_are_refused(begun):
    begun.reply(fenced(kernel("2.0 ms")))

    def swapped(job: Job) -> Answer:
        evaluation = judged(job).evaluation
        assert evaluation is not None
        return Answer(job.id, replace(evaluation, candidate_hash="0" * 16))

    before = (begun.folder / "events.jsonl").read_bytes()
    result = begun.judge(swapped)
    assert result.exit_code == 2
    assert "is for another kernel" in result.stdout
    assert (begun.folder / "events.jsonl").read_bytes() == before
    assert begun.judge().exit_code == 0


def test_failed_strange_and_known_results_are_told(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    result = begun.judge(lambda job: Answer(job.id, error=MachineError("the GPU fell\x1b[31m off")))
    assert result.exit_code == 0
    assert "no verdict: the GPU fell" in result.stdout
    assert "\x1b" not in result.stdout
    assert "waits for 1 evaluation" in result.stdout
    assert begun.judge().exit_code == 0
    line = json.loads(begun.results.read_text())
    begun.results.write_text("".join(f"{json.dumps(row)}\n" for row in (line, {**line, "job": "else/1"})))
    told = json.loads(egg("results", begun.folder, begun.results, "--json").stdout)
    assert (told["taken"], told["known"], told["strange"]) == (0, 1, 1)
    assert "1 known already, 1 for nothing" in egg("results", begun.folder, begun.results).stdout
    begun.results.write_text('{"job": "a", "evaluation": {}}\n')
    assert egg("results", begun.folder, begun.results).exit_code == 2


def test_a_last_line_is_read_without_its_newline_and_passed_over_when_torn(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    begun.judge(lambda job: Answer(job.id, error=MachineError("the GPU fell off")))
    failed = begun.results.read_text().rstrip("\n")
    begun.results.write_text(failed)
    assert "no verdict: the GPU fell off" in egg("results", begun.folder, begun.results).stdout
    begun.results.write_text(failed[:-1])
    torn = egg("results", begun.folder, begun.results)
    assert (torn.exit_code, "no verdict" in torn.stdout) == (0, False)
    begun.judge()
    verdict = begun.results.read_text().rstrip("\n")
    begun.results.write_text(f"{verdict}\n{failed}")
    told = json.loads(egg("results", begun.folder, begun.results, "--json").stdout)
    assert (told["known"], told["without_verdict"]) == (1, {}), "a job with a verdict has not failed"


def test_many_runs_travel_together_and_one_that_cannot_go_on_stops_no_other(task, tmp_path):
    runs = [Run(tmp_path / "many" / name) for name in "abc"]
    for run, says in zip(runs, ("2.0 ms", "0.5 ms", None), strict=True):
        egg("optimize", task, *STEP, "--out", run.folder)
        if says:
            run.reply(fenced(kernel(says)))
    folders = [run.folder for run in runs]
    told = json.loads(egg("pending", *folders, folders[0], "--out", runs[0].jobs, "--json").stdout)
    assert (told["jobs"], [row["jobs"] for row in told["runs"]]) == (2, [1, 1, 0])
    listed = json.loads(egg("runs", tmp_path / "many", "--json").stdout)["runs"]
    assert [row["waiting"] for row in listed] == ["evaluations", "evaluations", "reply"]
    with run_lock(folders[0]):
        lines = [judged(job).to_line() for job in read_jobs(runs[0].jobs)]
        runs[0].results.write_text("".join(f"{line}\n" for line in lines))
        result = egg("results", *folders, tmp_path / "absent", runs[0].results)
    assert result.exit_code == 2
    assert "a: error: run a is being written by process" in result.stdout
    assert "absent: error: no run in" in result.stdout
    assert f"{folders[1]}: 1 result taken" in result.stdout
    assert egg("results", *folders, runs[0].results).exit_code == 0
    assert [run.next()["purpose"] for run in runs] == ["designer", "designer", "coder.seed"]


@pytest.mark.system
def test_one_writer_at_a_time_while_everybody_may_read(begun):
    with run_lock(begun.folder):
        result = begun.reply(fenced(kernel("2.0 ms")))
        assert result.exit_code == 2
        assert f"being written by process {os.getpid()}" in result.stderr
        assert egg("resume", begun.folder).exit_code == 2
        assert begun.next()["purpose"] == "coder.seed"
    assert begun.reply(fenced(kernel("2.0 ms"))).exit_code == 0


def test_a_reply_answers_the_question_it_was_written_for_and_no_other(begun, monkeypatch):
    """Somebody else replies between our looking and our writing."""
    look = offline.look

    def overtaken(folder: Path):
        seen = look(folder)
        monkeypatch.setattr(offline, "look", look)
        assert begun.reply("no kernel at all").exit_code == 0
        return seen

    monkeypatch.setattr(offline, "look", overtaken)
    result = begun.reply(fenced(kernel("2.0 ms")))
    assert (result.exit_code, "answered by somebody else" in result.stderr) == (2, True)
    assert begun.next()["messages"][-2]["text"] == "no kernel at all"


def test_results_need_a_run_and_a_file(begun):
    assert "is missing" in egg("results", begun.folder).stderr
    assert egg("results", begun.folder, begun.folder.parent / "absent.jsonl").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (("--team", "pair"), "unknown team", "expert, llm, hybrid, step"),
        (("--team", "llm"), "the llm team needs a model", "--model"),
        (("--team", "hybrid"), "the hybrid team needs a model", "--model"),
        (
            ("--team", "expert", "--model", "gpt-4o"),
            "--model has no effect: the expert team does not call a model",
            "hybrid",
        ),
        ((*STEP, "--model", "gpt-4o"), "--model has no effect", "--team llm"),
        ((*STEP, "--max-cost", "-1"), "--max-cost is -1", "larger than zero"),
        ((*STEP, "--max-cost", "nan"), "--max-cost is nan", "larger than zero"),
        ((*STEP, "--max-minutes", "inf"), "--max-minutes is inf", "larger than zero"),
        ((*STEP, "--max-tokens", "0"), "--max-tokens is 0", "larger than zero"),
        ((*STEP, "--max-steps", "-3"), "--max-steps is -3", "larger than zero"),
        ((*STEP, "--max-steps", "many"), "Invalid value for", "--max-steps"),
        ((*STEP, "--seed", "-1"), "--seed is -1", "from 0"),
        (("--model", "gpt-4o", "--temperature", "9"), "--temperature is 9", "0 to 2"),
        (("--model", "gpt-4o", "--key-variable", "sk-123"), "no name of an environment variable", "never"),
        (("--model", "gpt-4o"), "no key for", "OPENAI_API_KEY"),
        (("--model", "x", "--base-url", "http://localhost:1/v1", "--max-cost", "1"), "price of x", "tokens"),
        ((*STEP, "--budget", "huge"), "unknown budget", "quick"),
        ((*STEP, "--device", "tpu"), "unknown device", "offline"),
        ((*STEP, "--target", "h300"), "unknown GPU", ""),
        ((*STEP, "--out", "double.py"), "is a file", "--out"),
    ],
)
def test_mistakes_end_with_2_before_anything_is_written(task, tmp_path, monkeypatch, arguments, said, hint):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = egg("optimize", task, *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert hint in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["double.py"]
    if said != "Invalid value for":
        told = json.loads(egg("optimize", task, *arguments, "--json").stdout)
        assert (told["schema"], told["error"]) == ("egg.error/1", "usage")


def test_a_run_gets_a_folder_of_its_own(task, tmp_path, begun):
    again = egg("optimize", task, *STEP, "--out", begun.folder)
    assert (again.exit_code, "egg resume" in again.stderr) == (2, True)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "kernel.py").write_text("mine\n")
    assert egg("optimize", task, *STEP, "--out", tmp_path / "busy").exit_code == 2
    assert (tmp_path / "busy" / "kernel.py").read_text() == "mine\n"
    told = json.loads(egg("optimize", task, *STEP, "--json").stdout)
    assert (tmp_path / told["folder"] / "events.jsonl").is_file()
    assert Path(told["folder"]).parent.name == "egg-runs"


@pytest.mark.parametrize("verb", ["next", "resume", "replay"])
def test_a_folder_without_a_run(verb, tmp_path):
    result = egg(verb, tmp_path / "nowhere")
    assert (result.exit_code, "no run in" in result.stderr) == (2, True)
    assert not (tmp_path / "nowhere").exists()


def test_replies_are_not_for_runs_that_a_model_answers(task, tmp_path, monkeypatch):
    folder = tmp_path / "asked"
    monkeypatch.setattr(optimizing, "carry_on", interrupt)
    address = ("--base-url", "http://localhost:1/v1")
    begun = egg("optimize", task, "--model", "x", *address, "--device", "cpu", "--out", folder)
    assert begun.exit_code == 130
    assert f"interrupted; go on with: egg resume {folder}" in begun.stderr
    result = egg("reply", folder, "--file", "-", stdin="a reply")
    assert (result.exit_code, "a model answers in this run" in result.stderr) == (2, True)
    told = json.loads(egg("next", folder, "--json").stdout)
    assert (told["waiting"], told["purpose"]) == ("model", "coder.seed")
    assert "egg resume" in egg("next", folder).stdout


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_replay_tells_an_unfinished_log_and_a_changed_one(tmp_path):
    folder = tmp_path / "run"
    scripts.begin(folder, replace(scripts.settings(BUDGETS["quick"]), team="step"))
    go_on(folder, FULL)
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert egg("replay", folder).exit_code == 0

    log.write_text("".join(lines[:-2]))
    result = egg("replay", folder)
    assert (result.exit_code, "unfinished" in result.stdout) == (0, True)

    closed = max(n for n, line in enumerate(lines) if '"step.closed"' in line)
    changed = json.loads(lines[closed])
    changed["event"]["step"]["decision"] = "promoted"
    changed["event"]["step"]["reason"] = "because\x1b[2J I say so"
    log.write_text("".join([*lines[:closed], json.dumps(changed) + "\n", *lines[closed + 1 :]]))
    result = egg("replay", folder)
    assert result.exit_code == 1
    assert "diverged after" in result.stdout
    told = json.loads(egg("replay", folder, "--json").stdout)
    assert (told["reproduced"], "step.closed" in told["difference"]) == (False, True)
    log.write_text("".join(["{}\n", *lines]))
    assert egg("replay", folder).exit_code == 2


@pytest.mark.parametrize("verb", ["resume", "replay", "report", "next"])
def test_a_kernel_that_was_altered_in_a_finished_log_is_noticed(verb, tmp_path):
    log = write_log(tmp_path / "run", sample_events())
    lines = log.read_text().splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if '"kernel.proposed"' in line)
    lines[at] = lines[at].replace("tl.exp(", "tl.log(")
    log.write_text("".join(lines))
    result = egg(verb, tmp_path / "run")
    assert result.exit_code == 2
    assert f"line {at + 1} of" in result.stderr
    assert "was altered" in result.stderr
    assert not (tmp_path / "run" / "kernel.py").exists()


def test_runs_are_listed_with_the_broken_ones(task, tmp_path, ended):
    assert "no runs in egg-runs" in egg("runs").stdout
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text("{}\n")
    shown = egg("runs", tmp_path).stdout
    assert "reference" in shown
    assert "damaged" in shown
    rows = json.loads(egg("runs", tmp_path, "--json").stdout)["runs"]
    assert [row["error"] is None for row in rows] == [False, True]
    assert (rows[1]["state"], rows[1]["ended"], rows[1]["waiting"]) == ("reference", True, None)
    assert json.loads(egg("runs", ended.folder, "--json").stdout)["runs"][0]["steps"] == rows[1]["steps"]
    assert egg("runs", tmp_path / "absent").exit_code == 2


def test_a_task_that_has_its_row_in_a_bench_waits_for_nothing(tmp_path):
    """A bench at level quick ends its runs before the last evaluation: their logs stay open."""
    bench = tmp_path / "bench"
    for name in ("done", "open"):
        scripts.begin(bench / "runs" / name)
    (bench / "bench.json").write_text("{}")
    row = replace(many_rows(1)[0], run="runs/done")
    (bench / "rows.jsonl").write_text(row.to_line() + "\n")
    for place in (bench, bench / "runs"):
        rows = json.loads(egg("runs", place, "--json").stdout)["runs"]
        states = {Path(found["folder"]).name: (found["state"], found["ended"]) for found in rows}
        assert states == {"done": (row.verdict.kind, True), "open": ("waits for reply", False)}


# -- real processes, and a model on loopback --------------------------------------------------------

KEY = "sk-do-not-log-0123456789abcdef"

EGG = """
import sys
from egg.api import offline, optimizing
from tests.engine.scripts import FACTS
optimizing.facts_of = lambda *a: FACTS
from egg.cli.app import main
main()
"""


class Endpoint(BaseHTTPRequestHandler):
    """Streams a kernel file that repeats the key it was sent; while ``server.hangs`` it never ends."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        source = kernel("0.5 ms", extra=f"# {self.headers['authorization']}")
        self._piece("```python\n")
        self.server.asked.set()  # type: ignore[attr-defined]
        if self.server.hangs.is_set():  # type: ignore[attr-defined]
            self.server.released.wait(30)  # type: ignore[attr-defined]
            return
        self._piece(source + "\n```")
        end = {"delta": {}, "finish_reason": "stop", "index": 0}
        self._send({"choices": [end], "usage": {"prompt_tokens": 100, "completion_tokens": 50}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _piece(self, text: str) -> None:
        self._send({"choices": [{"delta": {"role": "assistant", "content": text}, "index": 0}]})

    def _send(self, chunk: dict) -> None:
        whole = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", **chunk}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked, server.hangs, server.released = (threading.Event() for _ in range(3))  # type: ignore[attr-defined]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


def process(*arguments: object) -> subprocess.Popen[str]:
    paths = [str(ROOT), str(ROOT / "src")]
    environ = {**os.environ, "OPENAI_API_KEY": KEY, "PYTHONPATH": os.pathsep.join(paths), "FORCE_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", EGG, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        # Whoever runs the tests in the background may have had SIGINT ignored, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on_and_does(task, tmp_path, number, code):
    folder = tmp_path / "run"
    with endpoint() as server:
        server.hangs.set()  # type: ignore[attr-defined]
        address = f"http://127.0.0.1:{server.server_port}/v1"
        stopped = process(
            *("optimize", task, "--model", "tiny", "--base-url", address),
            *("--device", "offline", "--out", folder),
        )
        assert server.asked.wait(60)  # type: ignore[attr-defined]
        time.sleep(0.5)  # by then it waits for the reply
        stopped.send_signal(number)
        out, said = stopped.communicate(timeout=180)
        assert stopped.returncode == code, said
        assert f"go on with: egg resume {folder}" in said
        assert "asking coder.seed" in said
        assert "Traceback" not in said
        assert out == ""
        if number is signal.SIGTERM:
            return

        server.hangs.clear()  # type: ignore[attr-defined]
        resumed = process("resume", folder, "--json")
        out, said = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, said
    told = json.loads(out)
    assert (told["waiting"], told["jobs"], told["ledger"]["unpriced_calls"]) == ("evaluations", 1, 1)
    assert "coder.seed answered: 150 tokens" in said
    assert "read back 2 events" in said
    assert "run double" not in said
    assert "\x1b" not in said
    assert "unpriced" in egg("resume", folder).stdout
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in said + out
