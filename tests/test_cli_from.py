"""``egg optimize TASK --from KERNEL``: a kernel of one's own is judged first, then improved by any team."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.api import optimizing, teams
from egg.api.clients import OutsideClient
from egg.api.runs import replay, state_of
from egg.cli.app import app
from egg.core.events import Answered, Proposed
from egg.core.plan import Pass, Unusable
from egg.core.stage import Category, Stage
from egg.core.step import Decision, Origin
from egg.engine.log import read_log
from egg.engine.scripted import Act, ScriptedJudge, ScriptedTeam
from egg.expert.deciding.given import ANEW
from egg.expert.team import ExpertTeam
from tests.engine.scripts import FACTS, PASSING, TASK, act, draft, kernel
from tests.engine.scripts import plan as scripts_plan
from tests.test_cli_runs import Run, fenced, nothing, plan

OFFLINE = ("--device", "offline", "--budget", "quick", "--target", "H200", "--no-lessons")


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "double.py"
    path.write_text(TASK.source)
    return path


def own(tmp_path: Path, says: str, **how: object) -> Path:
    path = tmp_path / "own.py"
    path.write_text(kernel(says, **how))  # type: ignore[arg-type]
    return path


@pytest.fixture
def judged_here(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedJudge]:
    """The built-in team in this process, and a scripted GPU: files of the team take 3 ms."""
    judges: list[ScriptedJudge] = []

    def judge(settings: object, watcher: object) -> ScriptedJudge:
        judges.append(ScriptedJudge(lambda file: act(file) if "SAYS" in file.source else Act(3.0)))
        return judges[-1]

    monkeypatch.setattr(optimizing, "prepare", lambda: None)
    monkeypatch.setattr(optimizing, "check_loads", lambda task, device: None)
    monkeypatch.setattr(optimizing, "_own_judge", judge)
    monkeypatch.setattr(teams, "_expert", ExpertTeam)
    return judges


def by_the_expert(task: Path, start: Path, run: Path, *more: object):
    return egg(
        "optimize", task, "--from", start, "--out", run, "--device", "cuda:0", "--target", "H200",
        "--budget", "quick", "--no-lessons", "--json", *more,
    )  # fmt: skip


@pytest.mark.parametrize("team", ["step", "hybrid"])
def test_the_given_kernel_is_judged_before_anyone_is_asked_and_becomes_the_base(
    team: str, task: Path, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run")
    model = ("--model", "some-model", "--base-url", "http://127.0.0.1:9/v1") if team == "hybrid" else ()
    started = egg(
        "optimize", task, "--from", own(tmp_path, "2.0 ms"), "--team", team, *model, *OFFLINE,
        "--out", run.folder,
    )  # fmt: skip
    assert started.exit_code == 0, started.output
    assert not [e for e in read_log(run.folder) if isinstance(e.event, Answered)]
    (given,) = [e.event for e in read_log(run.folder) if isinstance(e.event, Proposed)]
    assert given.origin is Origin.START
    if team == "step":
        run.judge()
        question = run.next()
        assert question["purpose"].startswith("designer")
        assert "2.0 ms" in str(question["messages"]), "the given file is what is built on"
        run.reply(plan(Category.OPERATOR_FUSION, "fuse it"))
        run.reply(fenced(kernel("0.5 ms")))
        run.judge()
        while run.next()["waiting"] == "reply":
            run.reply(nothing())
        assert run.judge().exit_code == 0
        assert replay(run.folder).state == state_of(run.folder)
        assert "0.5 ms" in (run.folder / "kernel.py").read_text()
        assert [step.decision for step in state_of(run.folder).steps[:2]] == [Decision.PROMOTED] * 2


EXPERT_RUN = {
    **PASSING,
    "coder.seed seed 1": draft("2.0 ms"),
    "designer structure 1": scripts_plan(Category.OPERATOR_FUSION, "fuse everything", 1.7),
    "coder.optimize structure 1": draft("1.0 ms"),
    "designer structure 2": Pass("one pass"),
}


def through_the_built_in_run(run: Run) -> None:
    """Judge until the run asks its own first question."""
    for _ in range(6):
        if run.next()["waiting"] != "evaluations":
            return
        judged = run.judge()
        assert judged.exit_code == 0, judged.output


def test_a_step_run_goes_on_from_the_best_kernel_of_the_built_in_team(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That team has a run of its own first; its tuned best is the base, the prompt lists what it tried."""
    monkeypatch.setattr(teams, "_expert", lambda: ScriptedTeam(EXPERT_RUN))
    run = Run(tmp_path / "run")
    started = egg("optimize", task, "--from", "expert", "--team", "step", *OFFLINE, "--out", run.folder)
    assert started.exit_code == 0, started.output
    assert run.next()["waiting"] == "evaluations"
    assert egg("replay", run.folder).exit_code == 0, "while the built-in team's run is open"
    through_the_built_in_run(run)
    question = run.next()
    assert (question["waiting"], question["purpose"]) == ("reply", "designer")
    prompt = question["messages"][1]["text"]
    assert 'SAYS = "1.0 ms"' in prompt
    tried = prompt[prompt.index("## What the built-in team tried before") :]
    assert "fuse everything" in tried
    assert "predicted 1.70x, measured 2.00x" in tried
    assert run.reply(nothing()).exit_code == 0
    state = state_of(run.folder)
    assert state.inherited is not None
    assert [step.number for step in state.steps] == [1, 2], "its own steps alone"
    assert egg("replay", run.folder).exit_code == 0
    assert replay(run.folder).state == state_of(run.folder)


def test_a_built_in_run_without_a_kernel_leaves_the_first_one_to_the_team(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_written = {**PASSING, "coder.seed seed 1": Unusable("no"), "coder.seed seed 2": Unusable("no")}
    monkeypatch.setattr(teams, "_expert", lambda: ScriptedTeam(nothing_written))
    run = Run(tmp_path / "run")
    assert (
        egg("optimize", task, "--from", "expert", "--team", "step", *OFFLINE, "--out", run.folder).exit_code
        == 0
    )
    assert run.next()["purpose"] == "coder.seed"


def test_a_hybrid_runs_question_may_be_answered_from_outside(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teams, "_expert", lambda: ScriptedTeam(EXPERT_RUN))
    monkeypatch.setattr(teams, "_live", lambda *given: OutsideClient())
    run = Run(tmp_path / "run")
    model = ("--team", "hybrid", "--model", "some-model", "--base-url", "http://127.0.0.1:9/v1")
    assert egg("optimize", task, *model, *OFFLINE, "--out", run.folder).exit_code == 0
    through_the_built_in_run(run)
    asked = run.next()
    assert (asked["waiting"], asked["purpose"]) == ("model", "designer")
    assert "egg reply" in egg("next", run.folder).stdout
    assert run.reply(nothing()).exit_code == 0
    assert run.next()["purpose"] == "tuner.mapping"
    assert egg("replay", run.folder).exit_code == 0


def test_a_refused_kernel_ends_the_run_with_the_refusal(
    task: Path, tmp_path: Path, judged_here: list
) -> None:
    result = by_the_expert(task, own(tmp_path, "refuse correctness"), tmp_path / "run")
    assert result.exit_code == 1, result.output
    printed = json.loads(result.stdout)
    assert printed["verdict"] == "reference"
    assert "the given kernel was refused at gate correctness (correctness.wrong)" in printed["reason"]
    assert "something was seen; look at: look at it" in printed["reason"]
    assert len(judged_here[0].judged) == 1
    assert not [e for e in read_log(tmp_path / "run") if isinstance(e.event, Answered)], "no team was asked"
    assert egg("replay", tmp_path / "run").exit_code == 0


def test_the_built_in_team_turns_the_constants_of_a_file_that_beats_its_own(
    task: Path, tmp_path: Path, judged_here: list
) -> None:
    """Its own kernel takes 3 ms, the given one 0.7 ms: the file stays, and a larger block makes it faster."""
    start = own(tmp_path, "25.6 / BLOCK + 0.5 ms")
    result = by_the_expert(task, start, tmp_path / "run")
    assert result.exit_code == 0, result.output
    state = state_of(tmp_path / "run")
    anew = state.steps_in(Stage.STRUCTURE)[0]
    assert anew.plan is not None
    assert anew.plan.change == ANEW
    assert anew.decision is Decision.NOT_BETTER
    tiling = state.steps_in(Stage.TILING)[0]
    assert tiling.decision is Decision.PROMOTED
    assert "BLOCK = 256" in (tmp_path / "run" / "kernel.py").read_text()
    assert replay(tmp_path / "run").state == state


def test_the_built_in_team_writes_the_program_anew_where_that_is_faster(
    task: Path, tmp_path: Path, judged_here: list
) -> None:
    result = by_the_expert(task, own(tmp_path, "9.0 ms"), tmp_path / "run", "--max-steps", "2")
    state = state_of(tmp_path / "run")
    assert state.steps[1].decision is Decision.PROMOTED, result.output
    assert "SAYS" not in state.sources[str(state.base)]
    log = tmp_path / "run" / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:6]))  # killed in the middle
    assert egg("resume", tmp_path / "run").exit_code == result.exit_code
    assert state_of(tmp_path / "run").base == state.base


def test_a_file_that_is_no_kernel_is_refused_before_anything_is_written(task: Path, tmp_path: Path) -> None:
    result = egg("optimize", task, "--from", task, *OFFLINE, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "does not define ModelNew" in result.output
    assert not (tmp_path / "run").exists()
