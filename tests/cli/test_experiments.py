"""``--without`` and ``--samples`` on the command line: recorded, shown, refused with the parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from egg.api import optimizing
from egg.api.benching.bench import BenchResult
from egg.api.benching.manifest import Manifest
from egg.api.benching.one import opened
from egg.api.benching.options import BenchOptions, settled
from egg.api.runs import state_of
from egg.bench.outcomes import settings_of_row
from egg.cli import bench
from egg.cli.app import app
from egg.core.settings import ModelChoice, Settings
from egg.engine.budgets import BUDGETS
from tests.bench.made import passed, task
from tests.engine import scripts


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: scripts.FACTS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "double.py").write_text(scripts.TASK.source)


def egg(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_parts_are_recorded_in_the_run(tmp_path: Path) -> None:
    ran = egg(
        *("optimize", "double.py", "--team", "step", "--device", "offline", "--out", "run", "--json"),
        *("--without", "few-shot,skills,edits"),
    )
    assert ran.exit_code == 0, ran.output
    settings = state_of(tmp_path / "run").started.settings
    assert settings.without == ("skills", "few-shot", "edits")
    assert settings.skills is None
    assert settings_of_row(settings)["without"] == "skills,few-shot,edits"
    question = json.loads(egg("next", "run", "--json").stdout)
    assert "## An example" not in question["messages"][0]["text"]


@pytest.mark.parametrize("command", [("optimize", "double.py"), ("bench", "llm-ops")])
def test_an_unknown_part_is_a_usage_error_with_the_parts(command: tuple[str, ...]) -> None:
    ran = egg(*command, "--team", "llm", "--model", "m", "--without", "wings")
    assert ran.exit_code == 2
    printed = " ".join(ran.output.split())
    assert "--without has no part 'wings'" in printed
    assert "few-shot, width, tools, edits" in printed


def test_width_is_either_given_or_left_out() -> None:
    ran = egg("optimize", "double.py", "--team", "step", "--width", "2", "--without", "width")
    assert ran.exit_code == 2
    assert "contradict" in ran.output


def test_a_bench_of_the_hybrid_team_opens_its_runs(tmp_path: Path) -> None:
    model = ModelChoice("openai", "m", "http://localhost:1/v1")
    settings = Settings("hybrid", BUDGETS["quick"], device="cpu", target="H200", model=model)
    options = settled(BenchOptions(settings), {})
    state = opened(scripts.TASK, options.settings, tmp_path / "run", {})
    assert state.started.settings.first == "expert"
    assert opened(scripts.TASK, options.settings, tmp_path / "run", {}).started == state.started


def test_samples_are_benches_beside_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[Path, Settings, float | None]] = []

    def run(suite: Any, settings: Settings, level: Any, place: Path, *more: Any) -> tuple[BenchResult, None]:
        seen.append((place, settings, more[-1]))
        row = passed(task(1), {"eager": 1.0 + len(seen)})
        row = replace(row, spent=replace(row.spent, money=2.0))
        manifest = Manifest("two", "made", "hash", {}, BenchOptions(settings), {}, "now")
        return BenchResult(place, manifest, (row,)), None

    monkeypatch.setattr(bench, "_run", run)
    ran = egg(
        *("bench", "llm-ops", "--samples", "2", "--seed", "7", "--out", "out", "--max-total-cost", "5"),
        "--json",
    )
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [(str(place), settings.seed, left) for place, settings, left in seen] == [
        ("out/sample-1", 7, 5.0),
        ("out/sample-2", 8, 3.0),
    ]
    assert (found["schema"], found["samples"]) == ("egg.bench-samples/1", 2)
    assert found["geomeans"] == pytest.approx([2.0, 3.0])
    assert [at["k"] for at in found["at"]] == [1, 2]
    assert len(found["benches"]) == 2
    assert "pass@2 1.000" in egg("bench", "llm-ops", "--samples", "2", "--out", "out").stdout
    assert egg("bench", "llm-ops", "--samples", "0").exit_code == 2
