"""Train in one process, ``egg tune``, train on the kernels in another: through the public doors alone."""

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

pytestmark = pytest.mark.timeout(900)  # two graphs are judged in full, in the interpreter
PROGRAM = """
import copy, json, sys
import torch, egg
from torch.nn import functional as F

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        return F.gelu(self.norm(x))

torch.manual_seed(int(sys.argv[1]))
block = Block()
options = {"fallback": "eager", "unmeasured": True}
run = torch.compile(block, backend=egg.backend, options=options, dynamic=False)
optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
worst = 0.0
for rows in map(int, sys.argv[2:]):
    x, target = torch.randn(rows, 8), torch.randint(0, 8, (rows,))
    exact = copy.deepcopy(block).double()
    exact.zero_grad()
    F.cross_entropy(exact(x.double()), target).backward()
    optimizer.zero_grad()
    F.cross_entropy(run(x), target).backward()
    for found, wanted in zip(block.parameters(), exact.parameters()):
        error = (found.grad - wanted.grad).abs().max() / wanted.grad.abs().max()
        worst = max(worst, error.item())
    optimizer.step()
print(json.dumps({"worst": worst, "graphs": egg.backend.stats()}))
"""


def trained(store: Path, seed: int, *rows: int) -> dict[str, Any]:
    environ = {**os.environ, "EGG_STORE": str(store), "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", PROGRAM, str(seed), *map(str, rows)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose graphs, a forward and a backward, were recorded by a program that trains, and tuned."""
    place = tmp_path_factory.mktemp("trained") / "store"
    first = trained(place, 1, 6, 6)
    assert [(row["part"], row["route"]) for row in first["graphs"]] == [
        ("forward", "recorded"),
        ("backward", "recorded"),
    ]
    done = CliRunner().invoke(app, ["tune", "--store", str(place), "--budget", "sketch", "--json"])
    assert done.exit_code == 0, done.output
    assert [row["state"] for row in json.loads(done.stdout)["tuned"]] == ["tuned", "tuned"]
    return place


def test_a_second_process_trains_on_both_kernels_and_its_gradients_are_right(store: Path):
    again = trained(store, 2, 6, 6, 6)
    assert again["worst"] < 1e-4
    for row in again["graphs"]:
        assert (row["route"], row["counts"]["kernel"], row["counts"]["fallback"]) == ("kernel", 3, 0)


def test_other_shapes_train_as_before(store: Path):
    again = trained(store, 3, 6, 9, 6)
    assert again["worst"] < 1e-4
    assert [row["counts"]["kernel"] for row in again["graphs"][:2]] == [2, 2]
    assert {row["route"] for row in again["graphs"][2:]} <= {"recorded", "left"}
