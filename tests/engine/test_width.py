"""Several drafts of one question: judged in one batch, one goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from egg.api.runs import Progress, replay, state_of
from egg.core.events import Answered, Evaluated
from egg.core.plan import Answer, Unusable
from egg.core.stage import Category
from egg.core.step import Decision, Origin
from egg.engine.log import LOG, read_log
from tests.engine import scripts

SEED = {**scripts.PASSING, "coder.seed seed 1": scripts.draft("2.0 ms")}
DRAFTS: dict[str, Answer] = {
    **SEED,
    "coder.seed seed 1 draft 2": scripts.draft("3.0 ms", body="x + x"),
    "coder.seed seed 1 draft 3": Unusable("no idea"),
    "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse it"),
    "coder.optimize structure 1": scripts.draft("1.5 ms", body="2 * x"),
    "coder.optimize structure 1 draft 2": scripts.draft("refuse correctness", body="x << 1"),
    "coder.optimize structure 1 draft 3": scripts.draft("0.9 ms", body="x * 2.0"),
    "designer structure 2": scripts.NOTHING,
}


def ran(place: Path, script: dict[str, Answer], width: int = 3) -> Progress:
    if not (place / LOG).exists():
        scripts.begin(place, replace(scripts.settings(), width=width))
    return scripts.go_on(place, script)


def test_the_fastest_right_draft_goes_on_and_all_are_kept(tmp_path: Path) -> None:
    state = ran(tmp_path / "run", DRAFTS).state
    seed, structure = state.steps[:2]
    assert (len(seed.attempts), len(structure.attempts)) == (2, 3)
    assert seed.candidate is not None
    assert "2.0 ms" in state.sources[seed.candidate]
    assert structure.decision is Decision.PROMOTED
    assert structure.candidate == structure.attempts[-1].candidate
    assert "0.9 ms" in state.sources[structure.attempts[-1].candidate]
    assert {attempt.origin for attempt in structure.attempts} == {Origin.OPTIMIZE}
    assert [attempt.failed for attempt in structure.attempts] == [True, False, False]


def test_drafts_are_asked_for_before_any_is_judged_and_replay_alike(tmp_path: Path) -> None:
    ran(tmp_path / "run", DRAFTS)
    events = [entry.event for entry in read_log(tmp_path / "run")]
    kinds = [type(event) for event in events if isinstance(event, Answered | Evaluated)]
    assert kinds[:5] == [Answered, Answered, Answered, Evaluated, Evaluated]
    assert replay(tmp_path / "run").state == state_of(tmp_path / "run")


def test_a_run_that_was_cut_off_between_drafts_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = ran(tmp_path / "whole", DRAFTS).state
    lines = (tmp_path / "whole" / LOG).read_text().splitlines(keepends=True)
    for kept in range(2, 16):
        place = tmp_path / f"cut-{kept}"
        place.mkdir()
        (place / LOG).write_text("".join(lines[:kept]))
        assert ran(place, DRAFTS).state.steps == whole.steps


def test_where_no_draft_is_right_the_one_that_came_furthest_is_repaired(tmp_path: Path) -> None:
    script = {
        **DRAFTS,
        "coder.optimize structure 1": scripts.draft("refuse correctness", body="2 * x"),
        "coder.optimize structure 1 draft 2": scripts.draft("refuse build", body="x << 1"),
        "coder.optimize structure 1 draft 3": scripts.draft("refuse static", body="x * 2.0"),
        "debugger structure 1.3": scripts.DIAGNOSIS,
        "coder.repair structure 1.3": scripts.draft("1.0 ms", body="x + x + 0"),
    }
    found = ran(tmp_path / "run", script).state.steps[1]
    assert found.decision is Decision.PROMOTED
    assert [a.refusal.gate.value for a in found.attempts if a.refusal] == ["static", "build", "correctness"]
    assert found.attempts[-1].origin is Origin.REPAIR


def test_a_draft_that_repeats_another_is_not_judged(tmp_path: Path) -> None:
    script = {**DRAFTS, "coder.optimize structure 1 draft 3": scripts.draft("1.5 ms", body="2 * x")}
    found = ran(tmp_path / "run", script).state.steps[1]
    assert found.decision is Decision.PROMOTED
    assert [a.objection for a in found.attempts if a.objection] == ["the same program was written in step 2"]


def test_one_draft_is_what_it_was(tmp_path: Path) -> None:
    script = {name: answer for name, answer in DRAFTS.items() if "draft" not in name}
    state = ran(tmp_path / "run", script, width=1).state
    assert [len(found.attempts) for found in state.steps[:2]] == [1, 1]
