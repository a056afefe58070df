"""A run recalls what earlier ones taught and teaches the next, through a store that its settings name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from egg.api import optimizing
from egg.api.clients import OutsideClient
from egg.api.optimizing import begin, carry_on
from egg.api.runs import look, replay, state_of
from egg.api.watching import Watcher
from egg.cli.app import app
from egg.core.errors import EggError
from egg.core.events import Advised
from egg.core.settings import Settings
from egg.core.stage import Category
from egg.core.step import Decision
from egg.engine.log import read_log
from egg.engine.scripted import ScriptedJudge
from egg.engine.state import RunState
from egg.memory.store import LessonStore
from tests.engine import scripts
from tests.knowledge.folders import write_skill

NOTHING = json.dumps({"bottleneck": "none", "worth_optimizing": False, "reason": "as good as it gets"})


def egg(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(autouse=True)
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two skills for the structure, the first of them promising a little more; no PyTorch is needed."""
    skills = tmp_path / "skills"
    write_skill(skills, "fuse", gain="1.2-3.1", gate="has_base")
    write_skill(skills, "split", gain="1.2-3", gate="has_base")
    monkeypatch.setattr("egg.knowledge.catalogue.built_in_folder", lambda: skills)
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: scripts.FACTS)
    monkeypatch.setattr(optimizing, "check_loads", lambda task, device: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store" / "lessons.sqlite"


def terms(store: Path | None) -> Settings:
    settings = scripts.settings()
    return replace(settings, team="step", skills=(), lessons=str(store) if store is not None else None)


def fenced(source: str) -> str:
    return f"```python\n{source}\n```\n"


def follow(skill: str) -> str:
    plan = {
        "bottleneck": "too slow",
        "worth_optimizing": True,
        "category": Category.OPERATOR_FUSION.value,
        "change": "do it",
        "predicted_speedup": 1.5,
        "metric": "time",
        "expectation": "less of it",
        "skill": skill,
        "reason": None,
    }
    return json.dumps(plan)


def run(folder: Path, store: Path | None) -> RunState:
    begin(scripts.TASK, terms(store), folder, {}, folder.name)
    return finish(folder)


def finish(folder: Path, watcher: Watcher | None = None) -> RunState:
    """``fuse`` makes it slower, ``split`` twice as fast; then there is nothing more to do."""
    answers = [
        fenced(scripts.kernel("2.0 ms")),
        follow("fuse"),
        fenced(scripts.kernel("3.0 ms", body="x + x")),
        follow("split"),
        fenced(scripts.kernel("1.0 ms", body="x * 2.0")),
        *[NOTHING] * 4,
    ]
    judge = ScriptedJudge(scripts.act)
    outside = OutsideClient(answers)
    return carry_on(folder, state_of(folder), watcher or Watcher(), {}, outside=outside, judge=judge).state


def offered(folder: Path, step: int) -> list[str]:
    events = [entry.event for entry in read_log(folder)]
    return [s.name for e in events if isinstance(e, Advised) and e.step == step for s in e.skills]


def test_the_second_run_is_offered_first_what_worked_in_the_first(tmp_path: Path, store: Path) -> None:
    first = run(tmp_path / "first", store)
    assert [step.decision for step in first.steps][1:3] == [Decision.NOT_BETTER, Decision.PROMOTED]
    assert offered(tmp_path / "first", 2) == ["fuse", "split"]
    with LessonStore(store) as kept:
        assert {(x.skill, x.worked) for x in kept.lessons() if x.skill} == {("fuse", False), ("split", True)}

    run(tmp_path / "second", store)
    assert offered(tmp_path / "second", 2) == ["split", "fuse"]


def test_a_run_keeps_what_it_recalled_whatever_becomes_of_the_store(tmp_path: Path, store: Path) -> None:
    run(tmp_path / "first", store)
    state = run(tmp_path / "second", store)
    store.unlink()
    assert replay(tmp_path / "second").state == state
    assert look(tmp_path / "second").state == state
    assert not store.exists(), "looking and replaying learn nothing"


def test_a_run_cut_off_before_its_first_offer_is_offered_what_it_recalled(
    tmp_path: Path, store: Path
) -> None:
    run(tmp_path / "first", store)
    folder = tmp_path / "second"
    begin(scripts.TASK, terms(store), folder, {}, "second")
    store.unlink()
    answers = [fenced(scripts.kernel("2.0 ms"))]
    judge = ScriptedJudge(scripts.act)
    carry_on(folder, state_of(folder), Watcher(), {}, outside=OutsideClient(answers), judge=judge)
    assert offered(folder, 2) == ["split", "fuse"]


def test_without_a_store_nothing_is_recalled_and_nothing_learned(tmp_path: Path, store: Path) -> None:
    run(tmp_path / "first", store)
    kept = store.read_bytes()
    state = run(tmp_path / "second", None)
    assert state.started.standings == {}
    assert offered(tmp_path / "second", 2) == ["fuse", "split"]
    assert store.read_bytes() == kept


def test_a_store_that_fails_while_a_run_goes_on_costs_the_lessons_only(tmp_path: Path, store: Path) -> None:
    class Seen(Watcher):
        def __init__(self) -> None:
            self.troubles: list[EggError] = []

        def trouble(self, error: EggError) -> None:
            self.troubles.append(error)

    begin(scripts.TASK, terms(store), tmp_path / "run", {}, "run")
    store.mkdir(parents=True)
    seen = Seen()
    assert finish(tmp_path / "run", seen).closed is not None
    assert len(seen.troubles) == 1


@pytest.mark.parametrize("kind", ["damaged", "no file"])
def test_an_unusable_store_is_said_before_anything_is_begun(kind: str, tmp_path: Path, store: Path) -> None:
    store.parent.mkdir()
    if kind == "damaged":
        store.write_bytes(b"not a database, but long enough to look like some file" * 20)
    else:
        store.mkdir()
    with pytest.raises(EggError, match=kind):
        run(tmp_path / "run", store)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "data/egg/lessons.sqlite"),
        (("--lessons", "mine.sqlite"), "mine.sqlite"),
        (("--no-lessons",), None),
    ],
)
def test_which_store_a_run_names(
    options: tuple[str, ...], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "double.py").write_text(scripts.TASK.source)
    step = ("--team", "step", "--device", "offline", "--target", "H200")
    done = egg("optimize", "double.py", *step, "--out", "run", *options)
    assert done.exit_code == 0, done.output
    named = state_of(tmp_path / "run").started.settings.lessons
    assert named == (str(tmp_path / expected) if expected else None)


def test_contradicting_options() -> None:
    Path("double.py").write_text(scripts.TASK.source)
    done = egg("optimize", "double.py", "--team", "step", "--lessons", "x", "--no-lessons")
    assert done.exit_code == 2
    assert "contradict" in done.output
