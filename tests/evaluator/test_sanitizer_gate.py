"""The sanitizer's gate without its tool: what becomes of what each tool says; none waits for another."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.gates import sanitizer
from egg.evaluator.process.confined import Cell, Ended
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.trial.refused import Refused
from tests.evaluator.test_timing_gates import HONEST, TASK

FAULTS = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at kernel+0x80
"""


@pytest.fixture
def trial() -> Any:
    program = Program.load(Task("scale", TASK))
    return SimpleNamespace(
        reference=Reference(program, Precision.MATCH, torch.device("cpu")),
        policy=SimpleNamespace(precision=Precision.MATCH),
        candidate=Candidate(HONEST),
        warnings=[],
    )


def says(monkeypatch: pytest.MonkeyPatch, **endings: Ended) -> None:
    """Each tool ends like that, and only once all of them have begun."""
    begun = threading.Barrier(len(sanitizer.TOOLS), timeout=180)

    def run(cell: Cell, command: list[str], *_: object, **__: object) -> Ended:
        begun.wait()
        return endings.get(command[command.index("--tool") + 1], Ended(0, ""))

    monkeypatch.setattr(sanitizer, "cuda_tool", lambda name: f"/opt/{name}")
    monkeypatch.setattr(Cell, "run", run)


def test_all_tools_run_side_by_side(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch)
    assert sanitizer.run(trial) == {"tools": ["memcheck", "initcheck", "racecheck"]}
    assert trial.warnings == []


@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_what_a_tool_finds_is_refused_in_its_words(
    trial: Any, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    says(monkeypatch, **{tool: Ended(sanitizer.FOUND, FAULTS)})
    with pytest.raises(Refused) as refused:
        sanitizer.run(trial)
    assert refused.value.reason == f"sanitizer.{tool}"
    assert "Invalid __global__ read" in refused.value.evidence


def test_of_several_faults_the_first_tool_is_named(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Ended(sanitizer.FOUND, FAULTS)
    says(monkeypatch, racecheck=found, initcheck=found)
    with pytest.raises(Refused) as refused:
        sanitizer.run(trial)
    assert refused.value.reason == "sanitizer.initcheck"


def test_a_tool_that_does_not_finish_is_a_warning_and_the_others_count(
    trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, memcheck=Ended(-9, "", cut="time"), racecheck=Ended(sanitizer.FOUND, FAULTS))
    with pytest.raises(Refused):
        sanitizer.run(trial)
    assert trial.warnings == ["memcheck did not finish (cut off after 120 s): "]


def test_a_real_command_runs_for_every_tool(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes no ``--tool``, and says so: three processes, three warnings."""
    monkeypatch.setattr(sanitizer, "cuda_tool", lambda name: sys.executable)
    sanitizer.run(trial)
    assert [warning.split()[0] for warning in trial.warnings] == list(sanitizer.TOOLS)
    assert all("exit 2" in warning for warning in trial.warnings)


def test_without_the_tool_the_gate_says_that_it_was_left_out(
    trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer, "cuda_tool", lambda name: None)
    assert sanitizer.run(trial) == {"tools": []}
    assert "not installed" in trial.warnings[0]
