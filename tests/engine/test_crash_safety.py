"""Killed at any moment, a run resumes to the end it would have come to undisturbed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import replay, state_of
from egg.engine.log import LOG, read_log
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.engine.state import RunState
from egg.evaluator.judge.pool import Job
from tests.engine.scripts import FULL, act, begin, go_on

KILLS = 50
PAUSE = 0.002
"""How long a scripted answer or verdict takes, so that a kill may fall into it as well as between."""


class SlowTeam(ScriptedTeam):
    def _say(self, cue, *kinds):
        time.sleep(PAUSE)
        return super()._say(cue, *kinds)


class SlowJudge(ScriptedJudge):
    def judge(self, jobs: Sequence[Job]):
        for verdict in super().judge(jobs):
            time.sleep(PAUSE)
            yield verdict


def run_slowly(folder: Path, ready=None) -> None:
    if not (folder / LOG).exists():
        begin(folder)
    if ready is not None:
        ready.set()
    go_on(folder, FULL, SlowJudge(act), SlowTeam(FULL))


def timeless(state: RunState) -> RunState:
    """The state without how long things took."""
    return replace(state, ledger=replace(state.ledger, seconds=0.0))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunState, float]:
    run_slowly(tmp_path_factory.mktemp("warm"))
    folder = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    run_slowly(folder)
    return timeless(state_of(folder)), time.monotonic() - started


def kill_after(folder: Path, seconds: float) -> bool:
    """Run in a process of its own and kill it; whether it was still running."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=run_slowly, args=(folder, ready))
    process.start()
    assert ready.wait(20)
    time.sleep(seconds)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def test_fifty_random_kills(tmp_path: Path, undisturbed: tuple[RunState, float]) -> None:
    expected, duration = undisturbed
    chance = random.Random(20261115)
    killed, lengths = 0, set()
    for number in range(KILLS):
        folder = tmp_path / str(number)
        killed += kill_after(folder, chance.uniform(0, duration))
        lengths.add(len(read_log(folder)))
        run_slowly(folder)
        assert timeless(state_of(folder)) == expected
        if number % 10 == 0:
            assert timeless(replay(folder).state) == expected
    assert killed > KILLS // 3
    assert len(lengths) > 10, "the kills fell on too few places to mean anything"


def test_killed_again_and_again(tmp_path: Path, undisturbed: tuple[RunState, float]) -> None:
    expected, duration = undisturbed
    chance = random.Random(7)
    for _ in range(8):
        kill_after(tmp_path, chance.uniform(0, duration / 4))
    run_slowly(tmp_path)
    assert timeless(state_of(tmp_path)) == expected


def test_nothing_recorded_is_asked_again(tmp_path: Path) -> None:
    run_slowly(tmp_path)
    whole = (tmp_path / LOG).read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines), 9):
        torn = tmp_path / f"cut{cut}"
        torn.mkdir()
        (torn / LOG).write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        team, judge = ScriptedTeam(FULL), ScriptedJudge(act)
        asked_before = [e.event for e in read_log(torn) if e.event.kind == "role.answered"]
        judged_before = [e.event for e in read_log(torn) if e.event.kind == "kernel.evaluated"]
        go_on(torn, FULL, judge, team)
        events = [e.event for e in read_log(torn)]
        assert len(team.asked) + len(asked_before) == sum(e.kind == "role.answered" for e in events)
        assert len(judge.judged) + len(judged_before) == sum(e.kind == "kernel.evaluated" for e in events)
