"""Runs from the command line: begun, stepped by hand, refused where the order is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.api import offline, optimizing
from egg.cli.app import app
from egg.core.stage import Category
from egg.engine.lock import run_lock
from egg.engine.scripted import ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job, read_jobs
from tests.engine.scripts import FACTS, TASK, act, kernel

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

    printed = json.loads(egg("resume", begun.folder, "--json").stdout)
    assert (printed["verdict"], printed["waiting"], printed["folder"]) == ("faster", None, str(begun.folder))
    assert [(row["stage"], row["promoted"]) for row in printed["stages"]] == [
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
    for file, message in (("absent", "no such file"), ("binary", "UTF-8"), ("blank", "empty")):
        result = egg("reply", begun.folder, "--file", tmp_path / file)
        assert (result.exit_code, message in result.stderr) == (2, True)
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
    assert (result.exit_code, "answered already" in result.stderr) == (2, True)
    assert begun.next()["messages"][-2]["text"] == "no kernel at all"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
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
def test_mistakes_end_with_2_before_anything_is_written(
    task, tmp_path, monkeypatch, arguments, message, hint
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = egg("optimize", task, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert hint in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["double.py"]
    if message != "Invalid value for":
        printed = json.loads(egg("optimize", task, *arguments, "--json").stdout)
        assert (printed["schema"], printed["error"]) == ("egg.error/1", "usage")


def test_a_run_gets_a_folder_of_its_own(task, tmp_path, begun):
    again = egg("optimize", task, *STEP, "--out", begun.folder)
    assert (again.exit_code, "egg resume" in again.stderr) == (2, True)
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "kernel.py").write_text("mine\n")
    assert egg("optimize", task, *STEP, "--out", tmp_path / "busy").exit_code == 2
    assert (tmp_path / "busy" / "kernel.py").read_text() == "mine\n"
    printed = json.loads(egg("optimize", task, *STEP, "--json").stdout)
    assert (tmp_path / printed["folder"] / "events.jsonl").is_file()
    assert Path(printed["folder"]).parent.name == "egg-runs"


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
    printed = json.loads(egg("next", folder, "--json").stdout)
    assert (printed["waiting"], printed["purpose"]) == ("model", "coder.seed")
    assert "egg resume" in egg("next", folder).stdout


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt
