"""What a row at level quick reports: the winner's own evaluation, or a second look where luck chose it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.benching.final import OPPONENTS, SEARCHING, final_of
from egg.core.policy import Level
from egg.engine.scripted import ScriptedJudge
from egg.evaluator.judge.pool import Job
from egg.evaluator.trial.levels import Profile
from tests.engine.scripts import BUDGET, act, begin, draft, go_on, settings
from tests.engine.test_sweeps_of_runs import OPEN


@pytest.mark.parametrize(
    ("seed", "side_by_side", "asked"),
    [
        ("0.53 ms", False, 1),
        ("0.53 ms", True, 0),
        ("0.60 ms", False, 0),
        ("0.50 ms", True, 0),
    ],
    ids=["close", "chosen side by side", "far behind", "the only one judged"],
)
def test_a_winner_is_judged_once_more_where_it_was_chosen_closely_by_its_own_time(
    seed: str, side_by_side: bool, asked: int, tmp_path: Path
) -> None:
    begin(tmp_path, settings(replace(BUDGET, side_by_side=side_by_side)))
    tuned = draft("0.5125 ms", block=512)
    script = {**OPEN, "coder.seed seed 1": draft(seed), "coder.optimize tiling 1": tuned}
    state = go_on(tmp_path, script).state
    judge = ScriptedJudge(act)
    final = final_of(state, tmp_path / "final.json", Level.QUICK, judge)
    assert final is not None
    assert final.candidate_hash == state.best
    assert len(judge.judged) == asked
    again = final_of(state, tmp_path / "final.json", Level.QUICK, judge)
    assert again == final
    assert len(judge.judged) == asked, "the second look was kept"


def test_a_second_look_has_every_opponent_and_tells_the_share_of_libraries(tmp_path: Path) -> None:
    begin(tmp_path, settings(replace(BUDGET, side_by_side=False)))
    state = go_on(tmp_path, {**OPEN, "coder.seed seed 1": draft("0.53 ms")}).state
    jobs: list[Job] = []

    class Seen(ScriptedJudge):
        def judge(self, asked):
            jobs.extend(asked)
            return super().judge(asked)

    final_of(state, tmp_path / "final.json", Level.QUICK, Seen(act))
    assert [job.question.settings for job in jobs] == [SEARCHING]
    assert (SEARCHING.opponents, SEARCHING.profile) == (OPPONENTS, Profile.SHARED)
