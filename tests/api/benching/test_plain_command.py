"""The bench on a machine that has PyTorch and Triton alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from egg.api.benching import __main__ as plain
from egg.bench.row_files import read_rows
from egg.bench.rows import Passed
from tests.api.benching.tasks import ROOT, relu

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


def tasks_file(folder: Path) -> Path:
    rows = [
        {"level": 1, "problem_id": task.problem_id, "name": task.name, "code": task.source}
        for task in (relu(1), relu(2))
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_machine_with_torch_and_triton_alone_is_enough(tmp_path: Path) -> None:
    """A whole run with the built-in team, its judge included, where nothing else is installed."""
    (tmp_path / "sitecustomize.py").write_text(BARE.format(names=ABSENT))
    command = [sys.executable, "-m", "egg.api.benching", str(tasks_file(tmp_path)), "--ids", "1/1",
               "--out", str(tmp_path / "bench"), "--device", "cpu", "--budget", "sketch",
               "--level", "quick"]  # fmt: skip
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "[1/1] 1/1 " in done.stdout
    (row,) = read_rows(tmp_path / "bench" / "rows.jsonl")
    assert isinstance(row.verdict, Passed), row
    assert row.timing is None
    assert row.verdict.resources is not None
    assert row.verdict.resources.registers > 0
    assert (tmp_path / "bench" / "kernels" / "1_1.py").exists()


def test_no_task_is_begun_after_the_seconds_are_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench"
    assert (
        plain.main([str(tasks_file(tmp_path)), "--out", str(out), "--device", "cpu", "--seconds", "0"]) == 1
    )
    assert "0 of 2 tasks have a row" in capsys.readouterr().out
    assert read_rows(out / "rows.jsonl") == []


def test_what_cannot_be_run_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain.main([str(tmp_path / "nothing.jsonl"), "--out", str(tmp_path / "bench")]) == 2
    assert "no such suite" in capsys.readouterr().err
