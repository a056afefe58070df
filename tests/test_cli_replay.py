"""Logs of runs looked at later: replayed, found altered, listed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from egg.engine.budgets import BUDGETS
from tests.engine import scripts
from tests.engine.logs import sample_events, write_log
from tests.engine.scripts import FULL, go_on
from tests.report.made import many_rows
from tests.test_cli_runs import begun, egg, ended, facts, task

__all__ = ["begun", "ended", "facts", "task"]


def test_replay_tells_an_unfinished_log_and_a_changed_one(tmp_path):
    folder = tmp_path / "run"
    scripts.begin(folder, replace(scripts.settings(BUDGETS["quick"]), team="step"))
    go_on(folder, FULL)
    log = folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    assert egg("replay", folder).exit_code == 0

    log.write_text("".join(lines[:-2]))
    result = egg("replay", folder)
    assert (result.exit_code, "unfinished" in result.stdout) == (0, True)

    closed = max(n for n, line in enumerate(lines) if '"step.closed"' in line)
    changed = json.loads(lines[closed])
    changed["event"]["step"]["decision"] = "promoted"
    changed["event"]["step"]["reason"] = "because\x1b[2J I say so"
    log.write_text("".join([*lines[:closed], json.dumps(changed) + "\n", *lines[closed + 1 :]]))
    result = egg("replay", folder)
    assert result.exit_code == 1
    assert "diverged after" in result.stdout
    printed = json.loads(egg("replay", folder, "--json").stdout)
    assert (printed["reproduced"], "step.closed" in printed["difference"]) == (False, True)
    log.write_text("".join(["{}\n", *lines]))
    assert egg("replay", folder).exit_code == 2


@pytest.mark.parametrize("verb", ["resume", "replay", "report", "next"])
def test_a_kernel_that_was_altered_in_a_finished_log_is_noticed(verb, tmp_path):
    log = write_log(tmp_path / "run", sample_events())
    lines = log.read_text().splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if '"kernel.proposed"' in line)
    lines[at] = lines[at].replace("tl.exp(", "tl.log(")
    log.write_text("".join(lines))
    result = egg(verb, tmp_path / "run")
    assert result.exit_code == 2
    assert f"line {at + 1} of" in result.stderr
    assert "was altered" in result.stderr
    assert not (tmp_path / "run" / "kernel.py").exists()


def test_runs_are_listed_with_the_broken_ones(task, tmp_path, ended):
    assert "no runs in egg-runs" in egg("runs").stdout
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text("{}\n")
    shown = egg("runs", tmp_path).stdout
    assert "reference" in shown
    assert "damaged" in shown
    rows = json.loads(egg("runs", tmp_path, "--json").stdout)["runs"]
    assert [row["error"] is None for row in rows] == [False, True]
    assert (rows[1]["state"], rows[1]["ended"], rows[1]["waiting"]) == ("reference", True, None)
    assert json.loads(egg("runs", ended.folder, "--json").stdout)["runs"][0]["steps"] == rows[1]["steps"]
    assert egg("runs", tmp_path / "absent").exit_code == 2


def test_a_task_that_has_its_row_in_a_bench_waits_for_nothing(tmp_path):
    """A bench at level quick ends its runs before the last evaluation: their logs stay open."""
    bench = tmp_path / "bench"
    for name in ("done", "open"):
        scripts.begin(bench / "runs" / name)
    (bench / "bench.json").write_text("{}")
    row = replace(many_rows(1)[0], run="runs/done")
    (bench / "rows.jsonl").write_text(row.to_line() + "\n")
    for place in (bench, bench / "runs"):
        rows = json.loads(egg("runs", place, "--json").stdout)["runs"]
        states = {Path(found["folder"]).name: (found["state"], found["ended"]) for found in rows}
        assert states == {"done": (row.verdict.kind, True), "open": ("waits for reply", False)}
