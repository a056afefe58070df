"""The bundled trajectories: answered by hand, judged on an H200, and decided again from their logs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.clients import JournaledClient, OutsideClient
from egg.api.result import kernel_source
from egg.api.runs import advance, replay, state_of
from egg.api.teams import llm_team
from egg.core.evaluation import Evaluation, Measured
from egg.core.events import Evaluated, Exchanged, SentBack
from egg.core.stage import Stage
from egg.core.step import Decision, Origin
from egg.engine.log import LOG, read_log
from egg.engine.state import RunState
from egg.evaluator.judge.pool import Job

FOLDER = Path(__file__).parent.parent / "examples" / "trajectories"
RUNS = sorted(path.parent for path in FOLDER.glob("*/events.jsonl"))


@pytest.fixture(params=RUNS, ids=lambda path: path.name)
def run(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_are_two() -> None:
    assert [path.name for path in RUNS] == ["linear_gelu_residual", "wide_softmax"]


def test_the_log_is_reproduced_without_anybody_being_asked(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / LOG, tmp_path)
    command = [sys.executable, "-m", "egg.cli", "replay", str(tmp_path), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout)
    assert printed["reproduced"]
    assert printed["events"] == len(read_log(run))
    assert printed["verdict"] == "faster"
    assert [path.name for path in tmp_path.iterdir()] == [LOG], "a replay writes nothing"


def test_every_stage_predicted_and_measured(run: Path) -> None:
    state = replay(run).state
    for stage in (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY):
        planned = [step for step in state.steps_in(stage) if step.plan is not None]
        assert planned, stage
        for step in planned:
            assert step.gain is not None, step
            assert step.gain.measured
    assert state == state_of(run)


def test_it_shows_a_repair_a_sweep_and_an_idea_that_did_not_gain(run: Path) -> None:
    state = state_of(run)
    assert any(a.origin is Origin.REPAIR and not a.failed for s in state.steps for a in s.attempts)
    assert any(step.sweep is not None for step in state.steps)
    assert any(step.decision is Decision.NOT_BETTER for step in state.steps)
    assert not any(isinstance(entry.event, SentBack) for entry in read_log(run))


def test_the_kernel_beside_the_log_is_the_one_it_ended_with(run: Path) -> None:
    state = state_of(run)
    assert (run / "kernel.py").read_text() == kernel_source(state)
    assert state.closed is not None
    winner = state.kernels[state.closed.candidate or ""]
    performance = winner.evaluation.to_json()["verdict"]["performance"]
    assert performance["kind"] == Measured.kind
    assert performance["faster"]


def test_a_changed_verdict_diverges(run: Path, tmp_path: Path) -> None:
    """The check is not empty: a log in which one time was edited is not reproduced."""
    lines = (run / LOG).read_text().splitlines(keepends=True)
    at = next(
        n for n, line in enumerate(lines) if '"kind":"kernel.evaluated"' in line and '"accepted"' in line
    )
    row = json.loads(lines[at])
    times = row["event"]["evaluation"]["verdict"]["performance"]["baselines"][0]["speedup"]
    times.update({key: value * 3 for key, value in times.items()})
    (tmp_path / LOG).write_text("".join([*lines[:at], json.dumps(row) + "\n", *lines[at + 1 :]]))
    command = [sys.executable, "-m", "egg.cli", "replay", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "diverged" in ended.stdout


def test_every_question_is_in_the_log(run: Path) -> None:
    asked = [entry.event for entry in read_log(run) if isinstance(entry.event, Exchanged)]
    assert {e.request.purpose.split(".")[0] for e in asked} == {"coder", "designer", "tuner", "debugger"}
    assert all(event.request.messages and event.completion.text for event in asked)


@pytest.mark.parametrize("cut", [3, 11, 24, 37, 52, 68, 81, 97])
def test_cut_anywhere_it_resumes_to_the_same_end(cut: int, tmp_path: Path) -> None:
    """A prefix of the log with half a line behind it, and the rest of the answers: the same final state."""
    run = FOLDER / "wide_softmax"
    lines = (run / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / LOG).write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
    whole = [entry.event for entry in read_log(run)]
    asked = [event for event in whole if isinstance(event, Exchanged)]
    before = sum(isinstance(entry.event, Exchanged) for entry in read_log(tmp_path))
    verdicts = {event.job: event.evaluation for event in whole if isinstance(event, Evaluated)}
    rest = OutsideClient([event.completion.text for event in asked[before:]])
    state = advance(
        tmp_path,
        lambda started, journal: llm_team(started.settings, JournaledClient(rest, journal)),
        KnownVerdicts(verdicts),
    ).state
    assert rest.unused == []
    assert timeless(state) == timeless(state_of(run))


class KnownVerdicts:
    """A judge that says again what the log has."""

    def __init__(self, verdicts: Mapping[str, Evaluation]) -> None:
        self._verdicts = verdicts

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        for job in jobs:
            yield job.id, self._verdicts[job.id]


def timeless(state: RunState) -> RunState:
    return replace(state, ledger=replace(state.ledger, seconds=0.0))
