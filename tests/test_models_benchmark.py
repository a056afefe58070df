"""``benchmarks.models``: models compile together and are timed alone; failures are rows; it goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.models import __main__ as program
from benchmarks.models.one import gains
from benchmarks.models.table import table, verdict
from benchmarks.models.tuning import tune_heaviest
from egg import __version__
from egg.api.tuning import Here, waiting
from egg.store import Claim, Rejected, Seen, Store

MEASURE = """
import fcntl, json, sys, time
name, lock = sys.argv[2], int(sys.argv[sys.argv.index("--lock") + 1])
began = time.monotonic()
if name == "broken":
    sys.exit("no such layer")
time.sleep(0.2 if name == "short" else 0.8)
compiled = time.monotonic()
fcntl.flock(lock, fcntl.LOCK_EX)
timed = time.monotonic()
time.sleep(0.2)
times = {"eager": 2.0, "compile": 1.0, "egg": 0.5 if name == "short" else 1.0}
print("a line of the model")
print(json.dumps({
    "milliseconds": times, "error": dict.fromkeys(times, 1e-3), "graphs": [], "seconds": {"compile": 1.0},
    "compiles": [began, compiled], "times": [timed, time.monotonic()],
}))
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> program.Bench:
    def started(arguments: Sequence[str], inherited: Sequence[int] = ()) -> Any:
        command = [sys.executable, "-c", MEASURE, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, pass_fds=inherited)

    monkeypatch.setattr(program, "started", started)
    return program.Bench(tmp_path, ("short", "long", "broken"), "sketch", 1, 3, 1, "eager,compile,egg")


def test_models_compile_together_and_are_timed_alone(
    bench: program.Bench, capsys: pytest.CaptureFixture[str]
):
    bench.step("measure", "models.jsonl", bench.measure)
    rows = {row["model"]: row for row in program.read(bench.out / "models.jsonl")}
    assert "no such layer" in rows["broken"]["error_text"]
    short, long = rows["short"], rows["long"]
    assert short["compiles"][0] < long["compiles"][1]
    assert short["times"][0] >= long["compiles"][1]  # it waited for the other to be compiled
    first, second = sorted(row["times"] for row in (short, long))
    assert first[1] <= second[0]
    assert set(short["seconds"]) == {"measure", "compile"}
    assert "measure long: done" in capsys.readouterr().out


def test_what_is_done_is_not_done_again(bench: program.Bench):
    for _ in range(2):
        bench.step("measure", "models.jsonl", bench.measure)
    names = [row["model"] for row in program.read(bench.out / "models.jsonl")]
    assert sorted(names) == ["broken", "broken", "long", "short"]


def test_the_table_compares_with_the_best_of_torch_and_names_failures(bench: program.Bench):
    bench.step("measure", "models.jsonl", bench.measure)
    start = {"model": "short", **dict.fromkeys(("cold compile", "cold egg", "warm compile", "warm egg"), 1.5)}
    text = table([], program.read(bench.out / "models.jsonl"), [start])
    assert "geomean 1.414x, median 1.500x, worst 1.000x of 2" in text
    assert "broken: measure failed" in text
    assert text.count("1.50") >= 4


@pytest.mark.parametrize(
    ("own", "seen"),
    [
        ([1.0] * 15, "slower"),
        ([0.8] * 15, "faster"),
        ([0.9] * 15, "even"),
        ([1.0, 0.8, 0.9] * 5, "even"),
        ([0.905, 0.906, 0.907] * 5, "slower"),
    ],
)
def test_a_verdict_names_what_three_of_four_rounds_show(own: list[float], seen: str):
    """Rounds are compared one by one, with the fastest of PyTorch."""
    times = {"eager": [2.0] * 15, "compile": [0.9] * 15, "egg": own}
    row: dict[str, Any] = {"milliseconds": {form: sorted(found)[7] for form, found in times.items()}}
    row["quartiles"] = {form: [sorted(found)[i] for i in (3, 7, 11)] for form, found in times.items()}
    assert verdict(row) == seen
    assert verdict({**row, "gains": gains(times)}) == seen


def test_rounds_that_drift_together_are_compared_one_by_one():
    slow = [1.0 + 0.1 * step for step in range(15)]
    times = {"compile": slow, "egg": [1.02 * taken for taken in slow]}
    row: dict[str, Any] = {"milliseconds": {form: found[7] for form, found in times.items()}}
    row["quartiles"] = {form: [found[i] for i in (3, 7, 11)] for form, found in times.items()}
    assert verdict(row) == "even"
    assert verdict({**row, "gains": gains(times)}) == "slower"
    row |= {"model": "drifting", "error": dict.fromkeys(times, 1e-3), "gains": gains(times)}
    assert table([], [row], []).endswith("1 slower")


TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.system
def test_a_graph_that_is_not_tuned_within_the_limit_is_rejected(tmp_path: Path):
    """The run ends as an interrupted one does, and the entry has its verdict."""
    store, here = Store(tmp_path, pytest.fail), Here.now()
    gpu = here.gpus[0] if here.gpus else ""
    inputs = ("input float32 64 x 64 by 64 x 1",)
    entry = store.record(
        Claim("relu, add", inputs, gpu, here.torch, here.triton, __version__), TASK, Seen(1, 1, 100)
    )
    row = tune_heaviest(tmp_path, "sketch", 1, seconds=3)
    assert row["entries"][0]["reason"] == "tuning did not end within 3 s"
    assert isinstance(store.named(entry.key).state, Rejected)
    assert not waiting(store, here).entries
