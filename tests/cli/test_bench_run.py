"""``egg bench`` for real: a broken and a tiny task on a CPU, interrupted, gone on with, exported, judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from egg.bench.row_files import read_rows
from egg.cli.app import app

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.rand(16, 64)]


def get_init_inputs():
    return []
"""
QUICKLY = ("--device", "cpu", "--level", "quick")
JUDGED = (*QUICKLY, "--budget", "sketch", "--workers", "1", "--no-skills")
MINUTES = 4
"""Until a command is given up: the machine may be busy."""


def started(place: Path, *words: str) -> subprocess.Popen[str]:
    """``egg bench`` in a session of its own, as in a terminal of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "egg.cli", "bench", *words],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background may ignore SIGINT, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def until_printed(process: subprocess.Popen[str], what: str) -> str:
    """Everything on standard error up to the line that has ``what``, or to the end."""
    assert process.stderr is not None
    printed = ""
    while what not in printed and (line := process.stderr.readline()):
        printed += line
    return printed


def judge_comes(group: int, seconds: float = 60.0) -> bool:
    """Whether a judge is started among the processes of a group."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile
                words = (place / "cmdline").read_bytes()
                if b"egg.evaluator.judge.oracle" in words and os.getpgid(int(place.name)) == group:
                    return True
        time.sleep(0.1)
    return False


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60 * MINUTES)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def egg(*words: str) -> Result:
    """The same in this process, which need not be started: nothing of it is stopped."""
    return CliRunner().invoke(app, ["bench", *words])


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def gone(group: int, seconds: float = 20.0) -> bool:
    """Whether every process of a group ends soon."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    return False


@pytest.mark.timeout(60 * 2 * MINUTES)
def test_a_bench_is_interrupted_gone_on_with_exported_and_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = tmp_path / "suite" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name, answer in (("1_broken", "x @ x"), ("2_relu", "torch.relu(x) * 2.0")):
        (level / f"{name}.py").write_text(SOURCE.format(answer=answer))
    bench, rows = tmp_path / "bench", tmp_path / "bench" / "rows.jsonl"

    # Ctrl-C while the second task is judged.
    process = started(tmp_path, "suite", *JUDGED, "--out", "bench")
    printed = until_printed(process, "[1/2]")
    at_work = judge_comes(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    err = printed + err
    assert at_work
    assert code == 130, err
    assert out == ""
    assert "stopping" in err
    assert "interrupted, 1 of 2 tasks have a row" in err
    assert f"go on with: egg bench suite {' '.join(JUDGED)} --out bench" in err
    assert "[1/2] 1/1 1_broken: no kernel: " in err
    assert gone(process.pid)
    (first,) = lines(rows)

    # The scores so far count what is missing as wrong.
    monkeypatch.chdir(tmp_path)
    scores = json.loads(egg("score", "bench", "--json").stdout)["scores"]["all"]
    assert (scores["correct"]["count"], scores["tasks"]) == (0, 2)
    assert scores["verdicts"] == {"no kernel": 2}

    # Other options, or other tasks, are another bench.
    other = egg("suite", *JUDGED, "--precision", "tf32", "--out", "bench")
    assert other.exit_code == 2
    assert "precision: match before, tf32 now" in other.stderr
    other = egg("suite", *JUDGED, "--ids", "1", "--out", "bench")
    assert other.exit_code == 2
    assert "the tasks" in other.stderr

    # The same command goes on.
    gone_on = egg("suite", *JUDGED, "--out", "bench")
    assert gone_on.exit_code == 0, gone_on.output
    assert "1 task to do, 1 done before" in gone_on.stderr
    assert "1/2 2_relu goes on where it was" in gone_on.stderr
    assert "[2/2] 1/2 2_relu: accepted; no GPU measured it" in gone_on.stderr
    assert "50% CORRECT" in gone_on.stdout
    assert "egg report bench" in gone_on.stdout
    assert lines(rows)[0] == first
    assert [json.loads(line)["key"] for line in lines(rows)] == ["1/1", "1/2"]
    assert [path.name for path in (bench / "kernels").iterdir()] == ["1_2.py"]

    # There is nothing left to do, and that is said at once.
    done = egg("suite", *JUDGED, "--out", "bench", "--json")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert (result["schema"], result["tasks"], result["missing"]) == ("egg.bench-result/1", 2, [])
    assert len(lines(rows)) == 2

    # In KernelBench's layout, and back from there.
    exported = egg("export", "bench", "--kernelbench", "kb")
    assert exported.exit_code == 0, exported.output
    run = tmp_path / "kb" / "runs" / "bench_level1"
    kernel = run / "level_1_problem_2_sample_0_kernel.py"
    assert kernel.read_text() == (bench / "kernels" / "1_2.py").read_text()
    kernel.write_text("class ModelNew(:\n")  # refused at once, which is quick
    (run / "level_1_problem_9_sample_0_kernel.py").write_text("class ModelNew: ...\n")
    judging = ("judge", "suite", "--kernels", str(run), *QUICKLY, "--out", "theirs")
    judged = egg(*judging)
    assert judged.exit_code == 0, judged.output
    assert "level_1_problem_9_sample_0_kernel.py" in judged.stderr
    assert "0% CORRECT" in judged.stdout
    theirs = {row.key: row.verdict.kind for row in read_rows(tmp_path / "theirs" / "rows.jsonl")}
    assert theirs == {"1/1": "no kernel", "1/2": "refused"}
    assert egg(*judging).exit_code == 0
    assert len(lines(tmp_path / "theirs" / "rows.jsonl")) == 2, "nothing is judged twice"
    other = egg(*judging, "--precision", "tf32")
    assert other.exit_code == 2
    assert "another policy" in other.stderr
    assert json.loads(egg("compare", "bench", "theirs", "--json").stdout)["outcomes"]["lost"] == 1
