"""``egg bundle`` and ``egg verify``: a claim is judged again elsewhere, and an altered one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.api import optimizing, teams
from egg.api.runs import state_of
from egg.cli import judging
from egg.cli.app import app
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.core.step import Origin
from egg.engine.scripted import ScriptedJudge
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question
from egg.expert.team import ExpertTeam
from tests import samples
from tests.engine.scripts import FACTS, FULL, act, begin, go_on


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    begin(tmp_path / "run")
    assert go_on(tmp_path / "run", FULL).state.closed is not None
    return tmp_path / "run"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted judge in the place of this machine's."""

    def evaluate(task: Task, candidate: Candidate, policy, *, target=None, **how: object):
        job = Job("again", Question(task, candidate, policy, target))
        ((_, found),) = ScriptedJudge(act).judge([job])
        return found

    monkeypatch.setattr(judging, "evaluate", evaluate)


@pytest.mark.parametrize("name", ["claim", "claim.zip"])
def test_a_bundle_is_judged_again_and_compared(name: str, run: Path, tmp_path: Path, here: None) -> None:
    packed = egg("bundle", run, tmp_path / name, "--json")
    assert packed.exit_code == 0, packed.output
    checked = egg("verify", tmp_path / name, "--json")
    assert checked.exit_code == 0, checked.output
    printed = json.loads(checked.stdout)
    assert printed["holds"]
    assert printed["digest"] == json.loads(packed.stdout)["digest"]
    assert {row["what"] for row in printed["compared"]} >= {"verdict", "torch", "speed"}


def test_a_claim_that_does_not_hold_here_is_told_with_the_refusal(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    egg("bundle", run, tmp_path / "claim")
    monkeypatch.setattr(judging, "evaluate", lambda *given, **how: samples.rejected())
    checked = egg("verify", tmp_path / "claim")
    assert checked.exit_code == 1
    assert "* verdict: claimed accepted; here rejected at correctness" in checked.output


@pytest.mark.parametrize("file", ["kernel.py", "task.py", "evaluation.json", "events.jsonl", "bundle.json"])
@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_a_tampered_bundle_is_refused(file: str, damage: str, run: Path, tmp_path: Path) -> None:
    egg("bundle", run, tmp_path / "claim")
    path = tmp_path / "claim" / file
    if damage == "missing":
        path.unlink()
    elif file == "bundle.json":
        path.write_text(path.read_text().replace('"precision": "match"', '"precision": "fp16"'))
    else:
        path.write_text(path.read_text() + "\n")
    checked = egg("verify", tmp_path / "claim")
    assert checked.exit_code == 2, checked.output
    assert "is no sound bundle" in checked.output


def test_another_kernel_with_matching_hashes_is_refused(run: Path, tmp_path: Path) -> None:
    """The manifest alone can be rewritten: the evaluation names the kernel that it accepted."""
    import hashlib

    egg("bundle", run, tmp_path / "claim")
    kernel, manifest = tmp_path / "claim" / "kernel.py", tmp_path / "claim" / "bundle.json"
    kernel.write_text(kernel.read_text().replace("x * 2", "x * 3"))
    data = json.loads(manifest.read_text())
    data["files"]["kernel.py"] = hashlib.sha256(kernel.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(data))
    checked = egg("verify", tmp_path / "claim")
    assert checked.exit_code == 2
    assert "not an acceptance of this kernel" in checked.output


def test_a_retargeted_run_keeps_the_structure(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    monkeypatch.setattr(optimizing, "prepare", lambda: None)
    monkeypatch.setattr(optimizing, "check_loads", lambda task, device: None)
    monkeypatch.setattr(optimizing, "_own_judge", lambda settings, watcher: ScriptedJudge(act))
    monkeypatch.setattr(teams, "_expert", ExpertTeam)
    monkeypatch.setattr(teams, "TEAMS", (*teams.TEAMS, "scripted"))
    best = state_of(run).closed
    result = egg("retarget", run, "--target", "A100", "--out", tmp_path / "new", "--device", "offline")
    assert result.exit_code == 0, result.output
    state = state_of(tmp_path / "new")
    assert best is not None
    assert list(state.sources) == [best.candidate]
    assert state.started.settings.target.startswith("A100")
    assert state.started.settings.budget.steps[Stage.STRUCTURE] == 0
    assert Origin.START.value in (tmp_path / "new" / "events.jsonl").read_text()
