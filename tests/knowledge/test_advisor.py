"""The advisor over a catalogue, and a run that is offered skills: in its log, the same in every replay."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import Progress, advance, look, replay, start
from egg.api.skills import advisor_for, default_folder, folders_for
from egg.core.errors import UsageError
from egg.core.evaluation import Gate, Refusal
from egg.core.events import Advised, Answered, SentBack
from egg.core.plan import Answer
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.stage import Category, Stage
from egg.core.step import Attempt, Decision, Origin, Trajectory
from egg.engine.log import LOG, read_log
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.knowledge.advisor import KnowledgeAdvisor
from egg.knowledge.catalogue import load
from egg.memory.standing import Standing
from tests.agents.briefs import brief
from tests.engine import scripts
from tests.knowledge.folders import write_skill

REFUSAL = Refusal(Gate.CORRECTNESS, "correctness.error", "it is wrong", "mend it")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "skills"
    write_skill(place, "fuse", gate="has_base")
    write_skill(place, "split", gain="1.1-1.2", gate="has_base")
    write_skill(place, "seed-well", stage="seed", categories="operator_fusion")
    write_skill(place, "wider", stage="memory", categories="access_width", gate="uses_masks")
    write_skill(place, "mask-it", stage="debugging", signature="correctness")
    return place


@pytest.fixture(autouse=True)
def only_these(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of what the package ships, which may change."""
    monkeypatch.setattr("egg.knowledge.catalogue.built_in_folder", lambda: folder)


def advisor(folder: Path, **more: object) -> KnowledgeAdvisor:
    return KnowledgeAdvisor(load([folder], built_in=False), **more)  # type: ignore[arg-type]


def mending(asked: Brief, refusal: Refusal | None) -> Brief:
    attempt = Attempt("0" * 16, Origin.OPTIMIZE, refusal=refusal, objection="" if refusal else "a repeat")
    return replace(asked, trajectory=Trajectory(asked.assignment.stage, (), (attempt,)))


# -- one brief -------------------------------------------------------------------------------------


def test_a_skill_comes_with_its_text_and_its_reason(folder: Path) -> None:
    first, second = advisor(folder).advise(brief(Stage.STRUCTURE, steps=0))
    assert (first.name, second.name) == ("fuse", "split")
    assert first.description == "What fuse does."
    assert first.body.startswith("## When\n\nNow.")
    assert first.reason == "has_base; promises 1.2-3x"


def test_by_stage(folder: Path) -> None:
    advised = advisor(folder)
    assert [s.name for s in advised.advise(brief(Stage.SEED, steps=0))] == ["seed-well"]
    assert [s.name for s in advised.advise(brief(Stage.MEMORY, steps=0))] == ["wider"]
    assert advised.advise(brief(Stage.TILING, steps=0)) == ()


def test_a_refusal_brings_the_debugging_skills_instead(folder: Path) -> None:
    advised, asked = advisor(folder), brief(Stage.STRUCTURE, steps=0)
    (skill,) = advised.advise(mending(asked, REFUSAL))
    assert skill.name == "mask-it"
    assert skill.reason.startswith("refused with correctness.error")
    assert advised.advise(mending(asked, replace(REFUSAL, reason="build.compile"))) == ()
    assert [s.name for s in advised.advise(mending(asked, None))] == ["fuse", "split"], (
        "the engine's own objection"
    )


def test_memory_changes_the_order_and_says_so(folder: Path) -> None:
    lessons = {Stage.STRUCTURE: {"fuse": Standing("fuse", 5, 0, 0.1, 1.0, 0.9, 0.7, 0.5, "build.compile")}}
    weak = advisor(folder, lessons=lessons)
    write_skill(folder, "split", gain="1.2-2.9", gate="has_base")
    weak = replace(weak, catalogue=load([folder], built_in=False))
    found = weak.advise(brief(Stage.STRUCTURE, steps=0))
    assert [skill.name for skill in found] == ["split", "fuse"]
    assert "remembered: fuse: worked in 0 of 5 tries" in found[1].reason


def test_the_same_for_the_same_brief(folder: Path) -> None:
    asked = brief(Stage.STRUCTURE)
    assert advisor(folder).advise(asked) == advisor(folder).advise(asked)
    assert len(advisor(folder).verdicts(asked)) == 5


# -- a whole run -----------------------------------------------------------------------------------

SCRIPT: dict[str, Answer] = {
    **scripts.PASSING,
    "coder.seed seed 1": scripts.draft("2.0 ms"),
    "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse it", skill="fuse"),
    "coder.optimize structure 1": scripts.draft("refuse correctness", body="x << 1"),
    "debugger structure 1.1": scripts.DIAGNOSIS,
    "coder.repair structure 1.1": scripts.draft("1.0 ms"),
    "designer structure 2": scripts.NOTHING,
}


def offered(folder: Path) -> Settings:
    return replace(scripts.settings(), skills=(str(folder),))


def run(place: Path, settings: Settings, script: dict[str, Answer] = SCRIPT) -> Progress:
    if not (place / LOG).exists():
        start(place, scripts.TASK, settings, scripts.FACTS, name="double-1")
    players = ScriptedTeam(script)
    return advance(
        place, lambda started, journal: players, ScriptedJudge(scripts.act), advisor=advisor_for(settings)
    )


def offers(place: Path) -> list[tuple[int, str, list[str]]]:
    events = [entry.event for entry in read_log(place)]
    return [(e.step, e.failure, [s.name for s in e.skills]) for e in events if isinstance(e, Advised)]


def test_offers_are_logged_once_a_step_and_once_a_kind_of_failure(folder: Path, tmp_path: Path) -> None:
    state = run(tmp_path / "run", offered(folder)).state
    assert state.steps[1].decision is Decision.PROMOTED
    assert state.steps[1].plan is not None
    assert state.steps[1].plan.skill == "fuse"
    assert offers(tmp_path / "run") == [
        (1, "", ["seed-well"]),
        (2, "", ["fuse", "split"]),
        (2, "correctness.wrong", ["mask-it"]),
        (3, "", ["fuse", "split"]),
        (6, "", ["wider"]),
    ]


def test_a_replay_offers_what_was_offered_whatever_became_of_the_skills(folder: Path, tmp_path: Path) -> None:
    state = run(tmp_path / "run", offered(folder)).state
    shutil.rmtree(folder)
    assert replay(tmp_path / "run").state == state
    assert look(tmp_path / "run").state == state


def test_a_run_that_was_cut_off_anywhere_goes_on_to_the_same_end(folder: Path, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", offered(folder)).state
    lines = (tmp_path / "whole" / LOG).read_text().splitlines(keepends=True)
    for count in range(1, len(lines)):
        place = tmp_path / f"cut-{count}"
        place.mkdir()
        (place / LOG).write_text("".join(lines[:count]))
        state = run(place, offered(folder)).state
        assert [s.decision for s in state.steps] == [s.decision for s in whole.steps], count
        assert offers(place) == offers(tmp_path / "whole"), count


def test_a_plan_is_held_to_the_offer(folder: Path, tmp_path: Path) -> None:
    script = {
        **SCRIPT,
        "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, skill="wider"),
        "designer structure 1 again": SCRIPT["designer structure 1"],
    }
    run(tmp_path / "run", offered(folder), script)
    sent = [e.event for e in read_log(tmp_path / "run") if isinstance(e.event, SentBack)]
    assert [event.objection for event in sent] == ["no skill 'wider' was offered; offered were fuse, split"]
    assert replay(tmp_path / "run").state.closed is not None


def test_a_run_without_skills_is_offered_none_and_stays_so(folder: Path, tmp_path: Path) -> None:
    script = {**SCRIPT, "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse it")}
    settings = scripts.settings()
    assert settings.skills is None, "what a log from before there were skills is read as"
    assert advisor_for(settings) is None
    state = run(tmp_path / "run", settings, script).state
    assert offers(tmp_path / "run") == []
    assert replay(tmp_path / "run").state == state


def test_a_log_that_went_on_without_an_offer_is_read_without_one(folder: Path, tmp_path: Path) -> None:
    script = {**SCRIPT, "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, "fuse it")}
    run(tmp_path / "run", scripts.settings(), script)
    lines = (tmp_path / "run" / LOG).read_text().splitlines(keepends=True)
    asked = next(n for n, entry in enumerate(read_log(tmp_path / "run")) if isinstance(entry.event, Answered))
    (tmp_path / "run" / LOG).write_text("".join(lines[: asked + 1]))
    players = ScriptedTeam({key: value for key, value in script.items() if not key.startswith("coder.seed")})
    state = advance(
        tmp_path / "run",
        lambda started, journal: players,
        ScriptedJudge(scripts.act),
        advisor=advisor_for(offered(folder)),
    ).state
    assert state.closed is not None
    assert offers(tmp_path / "run")[0][0] == 2, "new offers begin where the log ended"


# -- folders ---------------------------------------------------------------------------------------


def test_the_users_own_folder_comes_before_the_named_ones(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": "/nowhere"}
    named = tmp_path / "team"
    named.mkdir()
    assert folders_for([named], environment) == (named.resolve(),)
    default_folder(environment).mkdir(parents=True)
    assert folders_for([named, named], environment) == (
        (tmp_path / "config/egg/skills").resolve(),
        named.resolve(),
    )


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder of skills"):
        folders_for([tmp_path / "typo"], {"HOME": str(tmp_path)})
