"""The batch of the built-in team over many tasks: rows, resuming after a kill, and the page made of them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from egg.api.benching.final import OPPONENTS
from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Accepted, Baseline, Evaluation, Gate, Interval, Measured, Refusal, Rejected
from egg.core.policy import Level, LibraryCalls
from egg.core.source import Candidate, Task
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Answer, Job
from tests.api.benching.tasks import PRODUCT

ROOT = Path(__file__).resolve().parents[1]
EXPERT = ROOT / "benchmarks" / "expert"


def sibling(name: str) -> ModuleType:
    """A module of the benchmark, which finds its neighbours as a program started there does."""
    sys.path.insert(0, str(EXPERT))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXPERT))


rows, running, structure, page = (sibling(name) for name in ("rows", "running", "structure", "page"))
auditing, kernelbench = (sibling(name) for name in ("auditing", "kernelbench"))

TASK = """
import torch
from torch import nn

rows = 24
columns = 40

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
FIRST = Task("1_Relu", TASK.format(factor=2.0), 1, 1)
SECOND = Task("2_Product", PRODUCT, 1, 2)
"""There are several ways to write it."""
REFUSED = Refusal(Gate.CORRECTNESS, "correctness.values", "wrong from the first element on", "look at it")


def tasks_file(folder: Path, count: int) -> Path:
    lines = [
        {"level": 1, "problem_id": n, "name": f"{n}_Relu", "code": TASK.format(factor=float(n))}
        for n in range(1, count + 1)
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# -- one task ------------------------------------------------------------------------------------------


TIMES = {"eager": 1.0, "compile": 0.5, "reduce-overhead": 0.4}


class Opposed(ScriptedJudge):
    """Times every opponent that a question names."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked: list[tuple[Level, tuple[str, ...]]] = []

    def judge(self, jobs: Sequence[Job]):
        for job in jobs:
            ((name, evaluation),) = super().judge([job])
            opponents = job.question.level_settings.opponents
            self.asked.append((job.question.policy.level, opponents))
            yield name, self._opposed(evaluation, opponents)

    def _opposed(self, evaluation: Evaluation, opponents: tuple[str, ...]) -> Evaluation:
        verdict = evaluation.verdict
        if not isinstance(verdict, Accepted):
            return evaluation
        assert isinstance(verdict.performance, Measured)
        own = verdict.performance.milliseconds.median
        timed = tuple(Baseline(n, near(TIMES[n]), near(TIMES[n] / own)) for n in opponents)
        performance = replace(verdict.performance, baselines=timed)
        return replace(evaluation, verdict=replace(verdict, performance=performance))


def near(value: float) -> Interval:
    return Interval(value, value * 0.99, value * 1.01)


def terms(folder: Path, level: str = "quick") -> Any:
    return running.Terms("cuda:0", "quick", LibraryCalls.ALLOW, Level(level), folder)


class Faster(Opposed):
    """Every new file is a little faster than the one before; one that it knows takes as long as it did."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        super().__init__(self._act, floor=0.01)

    def _act(self, candidate: Candidate) -> Act:
        return Act(self.times.setdefault(candidate.hash, 0.3 * 0.97 ** len(self.times)))


def test_every_opponent_is_timed_and_a_winner_by_little_is_judged_once_more(tmp_path: Path) -> None:
    judge = Faster()
    row = running.run_task(SECOND, terms(tmp_path), judge)
    assert (row["verdict"], row.get("trouble")) == ("accepted", None)
    assert set(judge.asked) == {(Level.QUICK, OPPONENTS)}
    assert len(judge.asked) == len(judge.times) + 1 > 2
    assert row["ms"][0] == pytest.approx(min(judge.times.values()), rel=1e-3)
    assert row["seconds"]["final"] > 0


def test_the_only_kernel_of_a_run_is_not_judged_again(tmp_path: Path) -> None:
    judge = Opposed(lambda _: Act(0.3), floor=0.2)
    row = running.run_task(FIRST, terms(tmp_path), judge)
    assert row["verdict"] == "accepted"
    assert "trouble" not in row
    assert judge.asked == [(Level.QUICK, ("eager", "compile", "reduce-overhead"))]
    assert row["baselines"]["reduce-overhead"]["speedup"] == [1.3333, 1.32, 1.3467]
    assert row["faster"] is True
    assert row["own_share"] == 1.0
    assert row["structure"]["groups"][0].startswith("relu_mul_kernel: ")
    assert (tmp_path / "1_1" / "kernel.py").read_text().startswith('"""1_Relu, rewritten')
    assert set(row["seconds"]) == {"all", "writing", "judging", "tuning"}


def test_a_row_that_was_lost_is_made_again_without_asking_anybody(tmp_path: Path) -> None:
    first = running.run_task(FIRST, terms(tmp_path), Opposed(lambda _: Act(0.45)))
    judge = Opposed(lambda _: Act(0.1))
    again = running.run_task(FIRST, terms(tmp_path), judge)
    assert judge.asked == []
    assert {**again, "seconds": None} == {**first, "seconds": None}
    assert again["faster"] is False
    """Against one of three it is not faster."""


def test_a_run_goes_on_to_a_higher_level(tmp_path: Path) -> None:
    running.run_task(FIRST, terms(tmp_path), Opposed(lambda _: Act(0.3)))
    judge = Opposed(lambda _: Act(0.3))
    row = running.run_task(FIRST, terms(tmp_path, "full"), judge)
    assert [level for level, _ in judge.asked] == [Level.FULL]
    assert row["policy"]["level"] == "full"
    row = running.run_task(FIRST, terms(tmp_path, "audit"), judge)
    assert [level for level, _ in judge.asked] == [Level.FULL, Level.AUDIT]
    assert row["policy"]["level"] == "audit"


def test_what_is_refused_says_at_which_gate_and_every_attempt_why(tmp_path: Path) -> None:
    row = running.run_task(FIRST, terms(tmp_path), Opposed(lambda _: Act(refusal=REFUSED)))
    assert row["verdict"] == "refused at correctness"
    assert row["attempts"][0]["refused"] == "correctness: correctness.values"
    assert row["kernel"] is None


def test_a_winner_that_the_last_judging_refuses_is_no_kernel(tmp_path: Path) -> None:
    class Strict(Faster):
        def _evaluation(self, job: Job) -> Evaluation:
            found = super()._evaluation(job)
            return replace(found, verdict=Rejected(REFUSED)) if job.id.endswith("/final") else found

    row = running.run_task(SECOND, terms(tmp_path), Strict())
    assert row["verdict"] == "refused at correctness"
    assert row["attempts"][-1]["origin"] == "winner"
    assert not (tmp_path / "1_2" / "kernel.py").exists()


def test_a_machine_that_fails_is_told_apart_and_a_later_try_goes_on(tmp_path: Path) -> None:
    def broken(candidate: Candidate) -> Act:
        raise MachineError("the GPU fell off the bus", "push it back")

    row = running.run_task(FIRST, terms(tmp_path), Opposed(broken))
    assert row["verdict"] == "machine: the GPU fell off the bus"
    assert rows.to_retry(row)
    row = running.run_task(FIRST, terms(tmp_path), Opposed(lambda _: Act(0.3)))
    assert row["verdict"] == "accepted"


def test_a_task_that_does_not_load_has_its_reason(tmp_path: Path) -> None:
    task = Task("2_Broken", TASK.replace("import torch\n", "import no_such_package, torch\n"), 1, 2)
    row = running.run_task(task, terms(tmp_path), Opposed(lambda _: Act()))
    assert row["verdict"].startswith("no file: ")
    assert "no_such_package" in row["verdict"]


def test_other_terms_need_another_folder(tmp_path: Path) -> None:
    running.run_task(FIRST, terms(tmp_path), Opposed(lambda _: Act(0.3)))
    other = replace(terms(tmp_path), library_calls=LibraryCalls.FORBID)
    with pytest.raises(UsageError, match="other terms"):
        running.opened(FIRST, tmp_path / "1_1" / "run", other)


def test_the_docstring_of_a_file_tells_its_structure() -> None:
    told = textwrap.dedent("""\
        A task, rewritten.

        Kernels:
            pack_left, matmul_kernel: product 64x64x64 at fp32 grade
                (packed) with bias
            softmax_kernel: Softmax in one pass

        Left to PyTorch: matrix
        product (2 times).
        """)
    assert structure.groups_in(told) == [
        "matmul_kernel: product 64x64x64 at fp32 grade (packed) with bias",
        "softmax_kernel: Softmax in one pass",
    ]
    assert structure.left_in(told) == "matrix product (2 times)"


# -- rows and pages ------------------------------------------------------------------------------------


def canned(problem: int, **more: Any) -> dict[str, Any]:
    return {"level": 1, "problem": problem, "name": f"{problem}_Task", "verdict": "accepted", **more}


def timed(problem: int, ms: float, best: float, *, faster: bool) -> dict[str, Any]:
    speedups = {"eager": 2.0, "compile": best, "reduce-overhead": best + 0.1}
    baselines = {n: {"ms": [ms * s] * 3, "speedup": [s, s - 0.01, s + 0.01]} for n, s in speedups.items()}
    return canned(
        problem,
        ms=[ms, ms, ms],
        baselines=baselines,
        noise=0.01,
        faster=faster,
        own_share=1.0,
        library_ops={},
        launches=1,
        floor_ms=0.1,
        predicted_ms=0.2,
        diagnosis="dram: memory bandwidth is used up",
        structure={"groups": ["a_kernel: one pass", "b_kernel: one pass"], "moves": ["without product"]},
        seconds={"all": 10.0 * problem, "final": 2.0},
    )


def test_a_torn_row_is_cut_off_and_the_last_of_a_task_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"level": 1, "problem": 2, "verdict": "machine: x"}\n{"level": 1, "pro')
    assert [row["problem"] for row in rows.read_rows(path)] == [2]
    written = rows.Rows(path)
    written.add({"level": 1, "problem": 2, "verdict": "accepted"})
    written.add({"level": 1, "problem": 1, "verdict": "accepted"})
    written.close()
    assert [(row["problem"], row["verdict"]) for row in rows.read_rows(path)] == [
        (1, "accepted"),
        (2, "accepted"),
    ]


def test_the_page_tells_what_was_gained_over_the_first_kernel() -> None:
    def step(decision: str, gain: float | None, stage: str = "tiling") -> dict[str, Any]:
        change = "" if stage == "seed" else "another tile"
        return {"stage": stage, "change": change, "decision": decision, "gain": gain, "points": 0}

    def stepped(problem: int, *steps: dict[str, Any]) -> Any:
        return timed(problem, 0.5, 1.5, faster=True) | {"steps": list(steps)}

    first = step("promoted", None, "seed")
    tried = [
        stepped(1, first, step("promoted", 1.1)),
        stepped(2, first, step("not better", 0.9)),
        stepped(3, first, step("passed", None)),
        stepped(4, first, step("promoted", 1.4, "structure")),
    ]
    text = page.page(tried)
    gained = text[text.index("### Made faster") : text.index("### Not faster")]
    assert "Of 3 tasks" in gained
    assert [line.split(" | ")[1:] for line in gained.splitlines() if line.endswith("x |")] == [
        ["structure", "1.40x |"],
        ["tiling", "1.10x |"],
    ]
    assert "Made faster" not in page.page(tried[1:3])


def test_the_page_has_totals_losses_with_a_diagnosis_and_every_task() -> None:
    refused = canned(3, verdict="refused at state", refused=["state: state.stale"], seconds={"all": 5.0})
    text = page.page([timed(1, 0.5, 1.5, faster=True), timed(2, 0.4, 0.8, faster=False), refused])
    assert "| level 1 | 3 | 2 | 1 | 2.00x | 1.10x | 1.20x | 1.10x | 2 | 10.0 | 8.0 | 20 |" in text
    assert "| 1/3 Task | refused at state | state: state.stale |" in text
    assert "| 1/2 Task | 0.4 | compile | 0.80x | 4.00 | dram: memory bandwidth is used up |" in text
    assert "one pass (x2) [without product]" in text
    kept = page.filled("a\n<!-- begin allow -->\nold\n<!-- end allow -->\nb\n", "allow", text)
    assert kept.startswith("a\n<!-- begin allow -->\n\nPolicy: ")
    assert kept.endswith("<!-- end allow -->\nb\n")
    assert "old" not in kept
    with pytest.raises(UsageError, match="no section 'forbid'"):
        page.filled(kept, "forbid", text)


def test_an_audit_asks_for_the_kernels_of_the_rows_once_each_and_says_which_did_not_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge is a script that accepts every kernel but that of task 2, and cannot judge that of task 3."""

    def kernel_of(task: Task) -> str:
        return f"class ModelNew:\n    number = {task.problem_id}\n"

    tasks = [Task.from_json_line(line) for line in tasks_file(tmp_path, 5).read_text().splitlines()]
    policy = {"precision": "match", "library_calls": "allow", "level": "quick"}
    for task in tasks:
        kernel = tmp_path / "runs" / f"1_{task.problem_id}" / "kernel.py"
        kernel.parent.mkdir(parents=True)
        kernel.write_text(kernel_of(task))
    made = [
        canned(
            task.problem_id or 0,
            task=task.hash,
            kernel=Candidate(kernel_of(task)).hash,
            policy=policy,
        )
        for task in tasks
    ]
    made[4]["verdict"] = "refused at correctness"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    asked: list[str] = []
    able = False

    def judged(jobs: Sequence[Job], devices: list[str], take: Any, seats: int) -> None:
        for job in jobs:
            asked.append(job.id)
            assert job.question.policy.level is Level.AUDIT
            assert job.question.level_settings.sanitize
            if job.id == "1/3" and not able:
                take(Answer(job.id, error=MachineError("the GPU is gone", "look for it")))
                continue
            act = (
                Act(refusal=Refusal(Gate.SANITIZER, "sanitizer.memcheck", "out of bounds", ""))
                if job.id == "1/2"
                else Act(0.3)
            )
            ((_, found),) = ScriptedJudge(lambda _, act=act: act).judge([job])
            take(Answer(job.id, found))

    monkeypatch.setattr(kernelbench, "run_jobs", judged)
    command = [
        "audit",
        str(tmp_path / "tasks.jsonl"),
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "audit.jsonl"),
    ]
    command += ["--rows", str(tmp_path / "rows.jsonl"), "--runs", str(tmp_path / "runs")]
    assert kernelbench.main(command) == 1
    assert sorted(asked) == ["1/1", "1/2", "1/3", "1/4"], "what was refused is not audited"
    able = True
    assert kernelbench.main(command) == 1
    assert asked[4:] == ["1/3"], "only what the machine failed is asked again"
    assert "3 of 4 stood the audit" in capsys.readouterr().out
    text = page.page(rows.read_rows(tmp_path / "audit.jsonl"))
    assert "3 of 4 that had been accepted stood an audit" in text
    assert "| refused at sanitizer" in text

    (tmp_path / "runs" / "1_1" / "kernel.py").write_text(kernel_of(tasks[1]))
    made[0]["kernel"] = Candidate(kernel_of(tasks[1])).hash
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    assert kernelbench.main(command) == 1
    assert asked[5:] == ["1/1"], "another kernel has not stood an audit yet"

    (tmp_path / "runs" / "1_1" / "kernel.py").write_text(kernel_of(tasks[0]))
    (tmp_path / "audit.jsonl").unlink()
    assert kernelbench.main(command) == 2
    assert "is not the kernel of its row" in capsys.readouterr().err


def test_slim_rows_keep_the_figures_and_summaries_only() -> None:
    row = timed(1, 0.5, 1.5, faster=True) | {
        "attempts": [{"refused": "build: x", "evidence": "long"}, {"refused": "", "evidence": ""}],
        "steps": [{"stage": "tiling", "change": "c", "decision": "promoted", "gain": 1.2, "points": 3}],
        "kernels": {"a_kernel": 1},
    }
    kept = rows.slim(row)
    assert kept["refused"] == ["build: x"]
    assert kept["gains"] == ["tiling: promoted 1.200x"]
    assert "attempts" not in kept
    assert "kernels" not in kept
    assert kept["ms"] == row["ms"]
    assert kept["structure"] == {"moves": ["without product"], "kinds": ["one pass (x2)"]}
    assert page.page([kept]) == page.page([row])
    assert rows.slim(kept) == kept


# -- processes -----------------------------------------------------------------------------------------

SLOW = """
import os, sys, time
sys.path.insert(0, {expert!r})
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Slow:
    marks: str

    @contextmanager
    def ready(self):
        def work(task):
            from record import blank
            mark = Path(self.marks) / f"{{task.problem_id}}"
            if task.problem_id == 2 and not mark.exists():
                mark.write_text("died once")
                os._exit(3)
            time.sleep(0.25)
            return blank(task, f"done by {{os.getpid()}}")
        yield work

if __name__ == "__main__":
    import kernelbench
    from slow import Slow
    options = kernelbench._parser().parse_args(["compile", sys.argv[1], "--out", sys.argv[2]])
    sys.exit(kernelbench._batch(options, [Slow(sys.argv[3])] * 2))
"""


def test_a_killed_batch_goes_on_and_every_task_has_one_row(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(expert=str(EXPERT)))
    out = tmp_path / "rows.jsonl"
    command = [
        sys.executable,
        str(tmp_path / "slow.py"),
        str(tasks_file(tmp_path, 8)),
        str(out),
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    batch = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(rows.read_rows(out)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    batch.send_signal(signal.SIGKILL)
    batch.wait()
    before = [row["problem"] for row in rows.read_rows(out)]
    assert 2 <= len(before) < 8
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line)["problem"] for line in out.read_text().splitlines()]
    assert sorted(lines) == list(range(1, 9))
    assert "min left" in done.stdout
    workers = {int(row["verdict"].split()[-1]) for row in rows.read_rows(out)}
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


BARE = """
import sys

class Blocked:
    NAMES = {names!r}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.NAMES:
            raise ImportError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocked())
"""
ABSENT = ("anthropic", "genai_prices", "httpx2", "jinja2", "openai", "optuna", "pydantic",
          "pydantic_settings", "rich", "typer", "yaml")  # fmt: skip


def test_a_machine_with_torch_and_triton_alone_is_enough(tmp_path: Path) -> None:
    """A whole run with the built-in team, its judge included, where nothing else is installed."""
    (tmp_path / "sitecustomize.py").write_text(BARE.format(names=ABSENT))
    tasks, out = tasks_file(tmp_path, 1), tmp_path / "rows.jsonl"
    command = [sys.executable, str(EXPERT / "kernelbench.py"), "run", str(tasks), "--out", str(out),
               "--device", "cpu"]  # fmt: skip
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = rows.read_rows(out)
    assert (row["verdict"], row.get("trouble")) == ("accepted", None), row
    assert row["versions"]["gpu"] == ""
    assert "ms" not in row
    assert (tmp_path / "rows" / "1_1" / "kernel.py").exists()
