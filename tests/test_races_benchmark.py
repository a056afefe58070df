"""The race of first kernels: its words without a GPU, and a whole race on one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.races.__main__ import line_of, main, tasks_of
from benchmarks.races.one import distance, moved, tensors

PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.softmax(x * self.scale, dim=-1)

def get_inputs():
    return [torch.randn(512, 1024)]

def get_init_inputs():
    return [1024]
"""


def test_a_line_compares_ours_with_the_fastest_other_form() -> None:
    row = {"task": "softmax", "ms": {"eager": 0.4, "ours": 0.1, "compile": 0.2}, "failed": {}, "seconds": 1.0}
    assert line_of(row | {"error": {"ours": 1e-7}}).startswith("  2.00x softmax")


def test_a_form_that_failed_has_its_reason_and_no_ratio() -> None:
    failed = {"ours": "NothingToWrite: no operator"}
    row = {"task": "softmax", "ms": {"eager": 0.4}, "failed": failed, "error": {}, "seconds": 1.0}
    assert "ours FAILED NothingToWrite: no operator" in line_of(row)
    assert "x softmax" not in line_of(row)


def test_some_tasks_of_a_suite_are_named_behind_a_colon() -> None:
    assert [task.name for task in tasks_of("llm-ops:attention_alibi")] == ["attention_alibi"]
    assert len(tasks_of("llm-ops")) == 45


def test_outputs_are_compared_one_by_one_through_containers() -> None:
    exact = [torch.ones(4), torch.full((2,), 10.0)]
    found = tensors({"a": torch.ones(4), "b": (torch.full((2,), 11.0), 3)})
    assert distance(found, exact) == pytest.approx(0.1)
    assert distance(exact, exact) == 0.0


def test_containers_of_inputs_keep_their_types() -> None:
    assert moved({"lengths": [1, (2, "x")]}) == {"lengths": [1, (2, "x")]}


@pytest.mark.gpu
def test_a_program_is_raced_in_a_process_of_its_own(tmp_path: Path) -> None:
    suite, out = tmp_path / "tasks.jsonl", tmp_path / "rows.jsonl"
    suite.write_text(json.dumps({"level": 1, "problem_id": 1, "name": "softmax", "code": PROGRAM}))
    assert main([str(suite), "--out", str(out), "--workers", "1"]) == 0
    row = json.loads(out.read_text())
    assert set(row["ms"]) == {"eager", "ours", "compile", "reduce"}
    assert row["error"]["ours"] < 1e-5
    assert any("softmax" in name for name, _, _ in row["kernels_us"]["ours"])
