"""Record in one process, ``egg tune``, use the kernel in another: through the public doors alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from egg.cli.app import app

PROGRAM = """
import json, sys
import torch, egg

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16))
        self.register_buffer("shift", torch.rand(16))

    def forward(self, x):
        return torch.relu(x * self.weight) + self.shift

torch.manual_seed(int(sys.argv[1]))
options = {"fallback": "eager", "unmeasured": True, **json.loads(sys.argv[2])}
worst = 0.0
with torch.inference_mode():
    for block in (Block(), Block()):
        run = torch.compile(block, backend=egg.backend, options=options)
        for rows in (4, 4):
            x = torch.randn(rows, 16)
            worst = max(worst, (run(x) - block(x)).abs().max().item())
        x = torch.randn(4, 16, 2)[:, :, 0]
        worst = max(worst, (run(x) - block(x)).abs().max().item())
print(json.dumps({"worst": worst, "graphs": egg.backend.stats()}))
"""


def program(store: Path, seed: int, interpret: bool = False, **options: Any) -> dict[str, Any]:
    environ = {**os.environ, "EGG_STORE": str(store), "OMP_NUM_THREADS": "1"}
    if interpret:
        environ["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", PROGRAM, str(seed), json.dumps(options)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a program recorded into; one of its two graphs is tuned, the heavier one."""
    place = tmp_path_factory.mktemp("compiled") / "store"
    first = program(place, seed=1)
    assert {graph["route"] for graph in first["graphs"]} == {"recorded"}
    assert len(run("kernels", "list", "--store", place)["entries"]) == 2
    done = run("tune", "--store", place, "--limit", 1, "--budget", "sketch")
    assert [row["state"] for row in done["tuned"]] == ["tuned"]
    return place


def test_a_second_process_calls_the_kernel_on_other_weights_and_data(store: Path):
    again = program(store, seed=2, interpret=True)
    assert again["worst"] < 1e-6
    by_route = {graph["route"]: graph for graph in again["graphs"]}
    assert set(by_route) == {"kernel", "recorded"}
    assert by_route["kernel"]["counts"] == {"kernel": 4, "fallback": 0, "outside": {}, "failure": ""}


def test_the_entry_has_its_counts_its_verdict_and_its_files(store: Path):
    rows = run("kernels", "list", "--store", store)["entries"]
    assert [row["state"] for row in rows] == ["tuned", "recorded"]
    tuned = rows[0]
    assert tuned["seen"]["calls"] >= 4
    assert tuned["speedups"] == {}
    shown = run("kernels", "show", tuned["key"][:10], "--store", store)
    assert shown["entry"]["state"]["evaluation"]["verdict"]["kind"] == "accepted"
    kernel = CliRunner().invoke(app, ["kernels", "show", tuned["key"], "--kernel", "--store", str(store)])
    assert "@triton.jit" in kernel.stdout
    task = CliRunner().invoke(app, ["kernels", "show", tuned["key"], "--task", "--store", str(store)])
    assert "class Model(nn.Module)" in task.stdout


def test_without_the_interpreter_the_kernel_is_not_used_and_the_answer_is_right(store: Path):
    found = program(store, seed=3)
    assert found["worst"] == 0.0
    reasons = [graph["reason"] for graph in found["graphs"] if graph["route"] == "left"]
    assert any("TRITON_INTERPRET" in reason or "interpreter" in reason for reason in reasons)


def test_a_tuned_graph_is_not_tuned_again(store: Path):
    waiting = [
        row for row in run("kernels", "list", "--store", store)["entries"] if row["state"] == "recorded"
    ]
    assert len(waiting) == 1
    assert (
        run("kernels", "list", "--state", "tuned", "--store", store)["entries"][0]["key"] != waiting[0]["key"]
    )


def test_a_store_travels_as_a_folder_and_is_pruned(store: Path, tmp_path: Path):
    away, home = tmp_path / "away", tmp_path / "home"
    assert run("kernels", "export", away, "--state", "tuned", "--store", store)["exported"] == 1
    (home / "entries").mkdir(parents=True)
    assert run("kernels", "import", away, "--store", home) == {"read": 1, "taken": 1}
    assert run("kernels", "import", away, "--store", home) == {"read": 1, "taken": 0}
    (row,) = run("kernels", "list", "--store", home)["entries"]
    assert row["state"] == "tuned"
    assert run("kernels", "prune", "--state", "tuned", "--dry-run", "--store", home)["matching"] == 1
    assert run("kernels", "prune", "--other-versions", "--store", home)["deleted"] == 0
    assert run("kernels", "prune", "--older-than", 0, "--store", home)["deleted"] == 1
    assert run("kernels", "list", "--store", home)["entries"] == []
    assert list((home / "kernels").iterdir()) == []
    assert run("tune", "--store", home) == {"tuned": [], "elsewhere": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--state", "odd"], "unknown state"),
        (["list", "--store", "nowhere"], "no such folder"),
        (["show", "zz"], "no entry"),
        (["prune"], "nothing says what to delete"),
        (["prune", "--older-than", "nan"], "no number of days"),
        (["import", "nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_usage(store: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EGG_STORE", str(store))
    done = CliRunner().invoke(app, ["kernels", *words])
    assert done.exit_code == 2
    assert said in done.output


def test_a_limit_is_a_number_from_one(store: Path):
    done = CliRunner().invoke(app, ["tune", "--limit", "0", "--store", str(store)])
    assert done.exit_code == 2
    assert "--limit is 0" in done.output
