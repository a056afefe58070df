"""Runs of a strong model behind the built-in team: logs decide the same again, with gains as in the table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from egg.api.runs import replay
from egg.bench.suites import load
from egg.core.source import Task
from egg.core.step import Decision
from egg.engine.log import LOG

FOLDER = Path(__file__).parent.parent / "docs" / "evidence" / "hybrid"
LOGS = sorted((FOLDER / "logs").glob("*.jsonl.gz"))
ROWS = {row["task"]: row for row in map(json.loads, (FOLDER / "rows.jsonl").read_text().splitlines())}
BUNDLED = {key: task for suite in ("llm-ops", "real") for key, task in load(suite).by_key.items()}


def name_of(log: Path) -> str:
    return log.name.removesuffix(".jsonl.gz")


@pytest.mark.parametrize("log", LOGS, ids=name_of)
def test_a_run_is_decided_again_as_it_was_and_gained_what_the_table_says(log: Path, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(gzip.decompress(log.read_bytes()))
    state = replay(tmp_path).state
    row, task = ROWS[name_of(log)], state.started.task
    assert Task(task.name, task.source).hash == BUNDLED[name_of(log)].hash
    promoted = [step for step in state.steps if step.decision is Decision.PROMOTED and step.plan is not None]
    assert bool(promoted) == (row["decision"] == "promoted")
    if row["gain"] is None:
        assert row["hybrid"]["verdict"] == "rejected"
        return
    (step,) = promoted or [step for step in state.steps if step.decision is Decision.NOT_BETTER]
    base, best = (state.kernels[key or ""].evaluation.to_json() for key in (step.base, step.candidate))
    times = [one["verdict"]["performance"]["milliseconds"]["median"] for one in (base, best)]
    assert times[0] / times[1] == pytest.approx(row["gain"], rel=1e-3)


def test_networks_have_a_kernel_each() -> None:
    rows = map(json.loads, gzip.decompress((FOLDER / "networks.jsonl.gz").read_bytes()).splitlines())
    kernels = {row["task"]: row["kernel"] for row in rows}
    assert kernels.keys() == {task for task, row in ROWS.items() if row["suite"] == "kernelbench"}
    for text in kernels.values():
        compile(text, "kernel.py", "exec")
        assert "class ModelNew" in text
