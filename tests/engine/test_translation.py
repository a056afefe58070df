"""torch.compile's code in the loop: recorded once, where it is wanted; the next candidate where a team is
behind PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import replay, start, state_of
from egg.core.codec import from_json, to_json
from egg.core.events import CompiledRecorded
from egg.core.parts import COMPILED, reduced
from egg.core.plan import Answer, Draft, Unusable
from egg.core.recording import CANDIDATE, EVIDENCE, LaunchTime, Recording, use_of_recordings
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.step import Decision, Origin
from egg.engine.budgets import BUDGETS
from egg.engine.journal import Recorder
from egg.engine.judges import OfflineJudge
from egg.engine.log import LOG, read_log
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.engine.state import RunState
from tests import recordings
from tests.engine import scripts
from tests.engine.scripts import act, draft, kernel

TRANSLATED = "coder.translate seed 2"
SEED: dict[str, Answer] = {**scripts.PASSING, "coder.seed seed 1": draft("0.8 ms")}
FASTER: dict[str, Answer] = {**SEED, TRANSLATED: draft("0.5 ms", name="generated")}


def settings(use: str = CANDIDATE, budget: str = "quick", *without: str) -> Settings:
    given = replace(scripts.settings(BUDGETS[budget]), compiled=use, without=without)
    return reduced(given)


def judge(compiled: float | None = 0.6, recording: Recording | None = recordings.RECORDING) -> ScriptedJudge:
    return ScriptedJudge(act, compiled=compiled, recording=recording)


def ran(
    folder: Path, script: dict[str, Answer], by: ScriptedJudge, given: Settings | None = None
) -> tuple[RunState, ScriptedTeam]:
    if not (folder / LOG).exists():
        scripts.begin(folder, given or settings())
    team = ScriptedTeam(script)
    state = scripts.go_on(folder, script, by, team).state
    assert state.closed is not None
    assert replay(folder).state == state_of(folder) == state
    return state, team


def recorded(folder: Path) -> list[Recording]:
    return [e.event.recording for e in read_log(folder) if isinstance(e.event, CompiledRecorded)]


@pytest.mark.parametrize("budget", ["sketch", "quick"])
def test_a_first_kernel_behind_pytorch_meets_torch_compiles_code(tmp_path: Path, budget: str) -> None:
    by = judge()
    state, _ = ran(tmp_path / "run", FASTER, by, settings(CANDIDATE, budget))
    own, translation = state.steps_in(Stage.SEED)
    assert (own.decision, translation.decision) == (Decision.PROMOTED, Decision.PROMOTED)
    assert [attempt.origin for attempt in translation.attempts] == [Origin.TRANSLATION]
    assert state.closed is not None
    assert state.closed.candidate == translation.candidate
    assert translation.candidate is not None
    assert "def generated" in state.sources[translation.candidate]
    assert recorded(tmp_path / "run") == [recordings.RECORDING]
    of_it = [job for job in by.judged if translation.candidate in job]
    assert [job.rpartition(".")[2] for job in of_it] == ["quick", "full"]
    assert sum("side-by-side" in job for job in by.judged) == 1
    assert by.recorded[0].task == scripts.TASK


def test_nothing_is_recorded_where_the_kernel_is_ahead(tmp_path: Path) -> None:
    by = judge(compiled=0.9)
    _, team = ran(tmp_path / "run", FASTER, by)
    assert by.recorded == []
    assert recorded(tmp_path / "run") == []
    assert TRANSLATED not in team.asked


def test_a_translation_that_is_slower_is_timed_and_not_judged(tmp_path: Path) -> None:
    by = judge()
    state, _ = ran(tmp_path / "run", {**SEED, TRANSLATED: draft("0.9 ms", name="generated")}, by)
    own, translation = state.steps_in(Stage.SEED)
    assert translation.decision is Decision.NOT_BETTER
    assert state.base == own.candidate
    assert [job for job in by.judged if translation.attempts[0].candidate in job] == []


def test_a_translation_that_is_wrong_is_not_repaired(tmp_path: Path) -> None:
    state, team = ran(
        tmp_path / "run", {**SEED, TRANSLATED: draft("refuse correctness", name="generated")}, judge()
    )
    own, translation = state.steps_in(Stage.SEED)
    assert translation.decision is Decision.FAILED
    assert state.base == own.candidate
    assert not any("repair" in cue or "debugger" in cue for cue in team.asked)


def test_what_cannot_be_translated_costs_no_verdict(tmp_path: Path) -> None:
    by = judge()
    state, team = ran(tmp_path / "run", {**SEED, TRANSLATED: Unusable("it draws random numbers")}, by)
    step = state.steps_in(Stage.SEED)[1]
    assert step.decision is Decision.UNUSABLE
    assert "random numbers" in step.reason
    assert team.asked.count(TRANSLATED) == 1
    assert len(by.judged) == 2


def test_a_program_that_cannot_be_recorded_leaves_the_reason_and_goes_on(tmp_path: Path) -> None:
    _, team = ran(tmp_path / "run", FASTER, judge(recording=recordings.NOTHING))
    assert recorded(tmp_path / "run") == [recordings.NOTHING]
    assert TRANSLATED not in team.asked


def test_a_judge_that_records_nothing_leaves_no_event(tmp_path: Path) -> None:
    _, team = ran(tmp_path / "run", FASTER, judge(recording=None))
    assert recorded(tmp_path / "run") == []
    assert TRANSLATED not in team.asked
    assert not isinstance(OfflineJudge(), Recorder)


def test_where_no_own_kernel_is_right_the_translation_is_the_first(tmp_path: Path) -> None:
    script = {
        **scripts.PASSING,
        "coder.seed seed 1": Unusable("no pattern covers it"),
        "coder.seed seed 2": Unusable("no pattern covers it"),
        "coder.translate seed 3": draft("0.6 ms", name="generated"),
    }
    state, _ = ran(tmp_path / "run", script, judge())
    assert state.steps[2].decision is Decision.PROMOTED
    assert state.base == state.steps[2].candidate


def test_a_given_file_is_the_users_choice(tmp_path: Path) -> None:
    by = judge()
    folder = tmp_path / "run"
    start(folder, scripts.TASK, settings(), scripts.FACTS, name="given", first=Candidate(kernel("0.8 ms")))
    ran(folder, scripts.PASSING, by)
    assert by.recorded == []


def test_an_experiment_leaves_it_out(tmp_path: Path) -> None:
    for use in (CANDIDATE, EVIDENCE):
        by = judge()
        ran(tmp_path / use, FASTER, by, settings(use, "quick", COMPILED))
        assert by.recorded == []


class Reading(ScriptedTeam):
    """Keeps what every brief says of torch.compile."""

    def __init__(self, script: dict[str, Answer]) -> None:
        super().__init__(script)
        self.read: list[Recording | None] = []

    def seed(self, brief: Brief) -> Draft | Unusable:
        self.read.append(brief.compiled)
        return super().seed(brief)

    def design(self, brief: Brief):
        self.read.append(brief.compiled)
        return super().design(brief)


def test_a_team_that_reads_prompts_has_it_from_the_first_question_on(tmp_path: Path) -> None:
    folder, by, team = tmp_path / "run", judge(), Reading(SEED)
    scripts.begin(folder, settings(EVIDENCE))
    state = scripts.go_on(folder, SEED, by, team).state
    assert team.read == [recordings.RECORDING] * 2
    assert len(by.recorded) == 1
    assert not any("translate" in cue for cue in team.asked)
    assert replay(folder).state == state
    assert state.ledger.seconds >= recordings.RECORDING.seconds


def test_a_run_that_was_cut_off_anywhere_ends_alike_and_records_once(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    state, _ = ran(whole, FASTER, judge())
    lines = (whole / LOG).read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"compiled.recorded"' in line)
    for kept in (at - 1, at, at + 1, at + 2, at + 4):
        folder, by = tmp_path / str(kept), judge()
        folder.mkdir()
        (folder / LOG).write_bytes(b"".join(lines[:kept]))
        again, _ = ran(folder, FASTER, by)
        assert [step.decision for step in again.steps] == [step.decision for step in state.steps]
        assert len(recorded(folder)) == 1
        assert len(by.recorded) == (kept <= at)


def test_a_recording_goes_through_json_and_is_whole() -> None:
    assert from_json(Recording, to_json(recordings.RECORDING)) == recordings.RECORDING
    assert recordings.RECORDING.milliseconds == pytest.approx(0.132)
    assert recordings.NOTHING.milliseconds is None
    with pytest.raises(ValueError, match="graph"):
        Recording(None)
    with pytest.raises(ValueError, match="graph"):
        Recording(recordings.GRAPH, "and a reason", (LaunchTime("a", 1.0),))


@pytest.mark.parametrize(
    ("team", "device", "use"),
    [
        ("expert", "cuda:0", CANDIDATE),
        ("expert", "auto", CANDIDATE),
        ("llm", "cuda:0", EVIDENCE),
        ("step", "cuda:0", EVIDENCE),
        ("expert", "cpu", ""),
        ("hybrid", "offline", ""),
    ],
)
def test_what_a_run_records_for(team: str, device: str, use: str) -> None:
    assert use_of_recordings(team, device) == use
