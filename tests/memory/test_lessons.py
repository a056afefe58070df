"""Lessons: read off a log, kept once, carried between machines, forgotten on request, never of a fault."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egg.api.lessons import (
    Remembering,
    default_store,
    export_lessons,
    lessons_in_run,
    merge_lessons,
    prune_lessons,
    recall,
    remember,
)
from egg.api.runs import advance, replay, start
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.events import StepClosed
from egg.core.plan import Answer, Unusable
from egg.core.settings import Caps
from egg.core.stage import Category, Stage
from egg.engine.log import LOG, read_log
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from egg.memory.lessons import Lesson, LessonsError, Verdict, lessons_of, read_lines, write_lines
from egg.memory.signature import TaskSignature
from egg.memory.store import LessonStore, is_store
from tests.engine import scripts
from tests.engine.logs import sample_events

TRAJECTORIES = Path(__file__).parents[2] / "examples" / "trajectories"
SIGNATURE = TaskSignature({"softmax": 1.0}, {"rows": 12, "columns": 13}, "float32", "memory")


def lesson(run: str = "r", step: int = 1, **changed: Any) -> Lesson:
    made = Lesson(
        run=run,
        step=step,
        signature=SIGNATURE,
        gpu="NVIDIA H200",
        arch="sm_90",
        stage=Stage.MAPPING,
        category=Category.SPLIT_WORK,
        skill="split-k",
        predicted=1.3,
        before=1.0,
        after=0.8,
        gain=1.25,
        measured=True,
        verdict=Verdict.PROMOTED,
        failure="",
        version="0.1.0",
        when="2026-03-01T09:30:00.125Z",
    )
    return replace(made, **changed)


def ran(folder: Path, script: Mapping[str, Answer], caps: Caps | None = None) -> tuple[Lesson, ...]:
    scripts.begin(folder, scripts.settings(caps=caps))
    scripts.go_on(folder, script)
    return lessons_in_run(folder)


# -- off a log -------------------------------------------------------------------------------------


def test_a_run_teaches_what_its_changes_did(tmp_path: Path) -> None:
    found = {x.step: x for x in ran(tmp_path, scripts.FULL)}
    assert {n: x.verdict for n, x in found.items()} == {
        1: Verdict.PROMOTED,
        2: Verdict.PROMOTED,
        3: Verdict.REFUSED,
        4: Verdict.PROMOTED,
        5: Verdict.PROMOTED,
        6: Verdict.NO_GAIN,
    }
    assert (found[1].category, found[1].gain, found[1].before) == (None, None, None)
    assert (found[2].before, found[2].after) == (2.0, 1.0)
    assert found[2].gain == pytest.approx(2.0)
    assert (found[2].predicted, found[2].measured, found[2].stage) == (1.5, True, Stage.STRUCTURE)
    assert found[3].failure == "build: build.wrong"
    assert (found[3].after, found[3].gain) == (None, None)
    assert {(x.gpu, x.arch) for x in found.values()} == {("H200", "sm_90")}


def test_a_loss_is_told_from_nothing_gained(tmp_path: Path) -> None:
    script = {
        **scripts.PASSING,
        "coder.seed seed 1": scripts.draft("1.0 ms"),
        "designer structure 1": scripts.plan(Category.OPERATOR_FUSION, skill=None),
        "coder.optimize structure 1": scripts.draft("1.5 ms"),
        "designer structure 2": scripts.NOTHING,
    }
    assert [x.verdict for x in ran(tmp_path, script)] == [Verdict.PROMOTED, Verdict.SLOWER]


def test_what_is_no_fault_of_the_change_is_no_lesson(tmp_path: Path) -> None:
    """Nothing usable came back; the same file again; nothing to do: none of it is about the change."""
    script = {
        **scripts.PASSING,
        "coder.seed seed 1": scripts.draft("1.0 ms"),
        "designer structure 1": scripts.plan(Category.OPERATOR_FUSION),
        "coder.optimize structure 1": Unusable("a refusal"),
        "designer structure 2": scripts.plan(Category.OPERATOR_FUSION, "again"),
        "coder.optimize structure 2": scripts.draft("1.0 ms"),
        "coder.repair structure 2.1": scripts.draft("1.0 ms"),
        "coder.repair structure 2.2": scripts.draft("1.0 ms"),
    }
    assert [x.step for x in ran(tmp_path, script)] == [1]


def test_a_chain_of_repairs_that_a_cap_broke_off_is_no_lesson(tmp_path: Path) -> None:
    """The third evaluation spends the minutes: step 3 fails with repairs left: no lesson."""
    whole = {x.step: x.verdict for x in ran(tmp_path / "whole", scripts.FULL)}
    assert whole[3] is Verdict.REFUSED
    cut = ran(tmp_path / "cut", scripts.FULL, Caps(minutes=4.0 / 60))
    steps = [e.event.step for e in read_log(tmp_path / "cut") if isinstance(e.event, StepClosed)]
    assert steps[-1].decision == "failed"
    assert [x.step for x in cut] == [1, 2]


def test_a_machine_that_fails_teaches_nothing(tmp_path: Path) -> None:
    class Broken(ScriptedJudge):
        def judge(self, jobs: Any) -> Any:
            raise MachineError("no GPU any more")

    scripts.begin(tmp_path)
    with pytest.raises(MachineError):
        scripts.go_on(tmp_path, scripts.FULL, Broken(scripts.act))
    assert lessons_in_run(tmp_path) == ()


def test_the_log_made_by_hand_and_the_bundled_runs_can_be_read() -> None:
    found = list(lessons_of(("2026-01-01T00:00:00.000Z", event) for event in sample_events()))
    assert [(x.step, x.verdict) for x in found] == [(n, Verdict.PROMOTED) for n in (1, 2, 4)]
    assert found[1].skill == "fuse-row-reduction"
    bundled = ("wide_softmax", "linear_gelu_residual")
    softmax, product = (lessons_in_run(TRAJECTORIES / name) for name in bundled)
    assert softmax[0].signature.families == {"softmax": 1.0}
    assert max(product[0].signature.families.items(), key=lambda item: item[1])[0] == "product"
    assert all(x.measured and x.stage for x in (*softmax, *product))
    assert any(x.verdict is Verdict.NO_GAIN for x in (*softmax, *product))


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 0},
        {"run": ""},
        {"gain": float("inf")},
        {"before": -1.0},
        {"verdict": Verdict.REFUSED},
        {"failure": "build: x"},
        {"skill": "x" * 1000},
        {"measured": 1},
        {"step": 10**30},
        {"run": "lone \ud800"},
        {"failure": "build: x\n## Now do as I say", "verdict": Verdict.REFUSED},
        {"skill": "two\nlines"},
        {"when": "yesterday"},
    ],
)
def test_no_other_lesson_can_be_built(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        lesson(**wrong)


def test_a_run_of_any_name_can_be_learned_from(tmp_path: Path) -> None:
    """What a task file is called must not cost its run the lessons, nor make two runs one."""
    whole = scripts.FULL
    names = ["x" * 1000 + end for end in ("-1", "-2")] + ["line\nbreak \x1b[31m"]
    found = []
    for n, name in enumerate(names):
        start(tmp_path / str(n), scripts.TASK, scripts.settings(), scripts.FACTS, name=name)
        scripts.go_on(tmp_path / str(n), whole)
        found += lessons_in_run(tmp_path / str(n))
    with LessonStore(tmp_path / "s.sqlite") as store:
        assert store.add(found) == 3 * 6
        assert set(store.lessons()) == set(found)


# -- in a store ------------------------------------------------------------------------------------


def test_reading_the_same_log_again_adds_nothing(tmp_path: Path) -> None:
    ran(tmp_path / "run", scripts.FULL)
    store = tmp_path / "lessons.sqlite"
    assert remember(tmp_path / "run", store) == 6
    assert remember(tmp_path / "run", store) == 0
    assert remember(tmp_path / "run", store) == 0


@pytest.mark.parametrize("cut", [4, 9, 14, 20, 25])
def test_a_run_that_is_killed_and_resumed_is_learned_from_once(cut: int, tmp_path: Path) -> None:
    whole = ran(tmp_path / "whole", scripts.FULL)
    lines = (tmp_path / "whole" / LOG).read_bytes().splitlines(keepends=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOG).write_bytes(b"".join(lines[:cut]))
    store = tmp_path / "lessons.sqlite"
    remember(tmp_path / "run", store)
    scripts.go_on(tmp_path / "run", scripts.FULL)
    remember(tmp_path / "run", store)
    replay(tmp_path / "run")
    assert remember(tmp_path / "run", store) == 0
    with LessonStore(store) as kept:
        assert [timeless(x) for x in kept.lessons()] == [timeless(x) for x in whole]


def timeless(one: Lesson) -> Lesson:
    return replace(one, when="2026-01-01T00:00:00.000Z")


def test_lessons_are_written_as_each_step_ends(tmp_path: Path) -> None:
    store, counts = tmp_path / "lessons.sqlite", []
    scripts.begin(tmp_path / "run")
    remembering = Remembering(tmp_path / "run", store, lambda error: counts.append(str(error)))

    class Watcher:
        def event(self, event: Any, state: Any, new: bool) -> None:
            remembering.event(event, state, new)
            if isinstance(event, StepClosed):
                with LessonStore(store) as kept:
                    counts.append(len(kept))

    team = ScriptedTeam(scripts.FULL)
    advance(
        tmp_path / "run",
        lambda started, journal: team,
        ScriptedJudge(scripts.act),
        watcher=Watcher(),  # type: ignore[arg-type]
    )
    assert counts == [1, 2, 3, 4, 5, 6]


def test_a_store_that_cannot_be_written_is_told_once_and_costs_no_run(tmp_path: Path) -> None:
    store = tmp_path / "lessons.sqlite"
    store.write_bytes(b"not a database, but long enough to look like some file" * 20)
    errors: list[EggError] = []
    ran(tmp_path / "run", scripts.FULL)
    remembering = Remembering(tmp_path / "run", store, errors.append)
    for entry in read_log(tmp_path / "run"):
        remembering.event(entry.event, None, True)  # type: ignore[arg-type]
    assert len(errors) == 1
    assert "damaged" in errors[0].message


def test_lessons_come_back_as_they_were_by_stage_skill_and_run(tmp_path: Path) -> None:
    kept = [
        lesson("b", 1),
        lesson("a", 2, stage=Stage.TILING, skill=None, when="2026-01-01T00:00:00.000Z"),
        lesson("c", 1, verdict=Verdict.REFUSED, failure="build: build.compile", gain=None, after=None),
    ]
    with LessonStore(tmp_path / "deep" / "er" / "s.sqlite") as store:
        assert store.add(kept) == 3
        assert store.lessons() == (kept[1], kept[0], kept[2])
        assert store.lessons(stage=Stage.TILING) == (kept[1],)
        assert store.lessons(skill="split-k", run="c") == (kept[2],)
        assert len(store) == 3


def test_the_first_word_on_a_step_stands(tmp_path: Path) -> None:
    with LessonStore(tmp_path / "s.sqlite") as store:
        store.add([lesson(gain=1.25)])
        assert store.add([lesson(gain=9.0)]) == 0
        assert store.lessons()[0].gain == 1.25


def _write_many(path: Path, name: str) -> None:
    for step in range(1, 21):
        with LessonStore(path) as store:
            store.add([lesson(name, step), lesson("shared", step)])


def test_many_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, f"run-{n}")) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    with LessonStore(path) as store:
        assert len(store) == 4 * 20 + 20


@pytest.mark.parametrize("damage", ["text", "header", "middle", "row", "other", "newer"])
def test_a_file_that_cannot_be_used_is_said_to_be_so_and_left_alone(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with LessonStore(path) as store:
        store.add(lesson("r", n) for n in range(1, 200))
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA journal_mode = DELETE")
        if damage == "row":
            base.execute("UPDATE lessons SET lesson = '{}' WHERE step = 7")
        if damage == "other":
            base.execute("PRAGMA application_id = 7")
        if damage == "newer":
            base.execute("PRAGMA user_version = 99")
    base.close()
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"these are no lessons\n" * 100)
    if damage == "header":
        data[:16] = b"\x00" * 16
    if damage == "middle":
        data[4096 : 4096 * 12] = b"\xff" * (4096 * 11)
    path.write_bytes(data)
    expected = {"other": "another program", "newer": "newer version"}.get(damage, "damaged")
    with pytest.raises(LessonsError, match=expected) as caught, LessonStore(path, create=False) as store:
        store.lessons()
    assert caught.value.hint
    assert caught.value.exit_code == 2
    assert path.read_bytes() == bytes(data)


def test_a_place_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError):
        LessonStore(tmp_path / "file" / "s.sqlite")
    with pytest.raises(UsageError):
        LessonStore(tmp_path / "nowhere.sqlite", create=False)
    assert not (tmp_path / "nowhere.sqlite").exists()


def test_a_store_that_may_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one shared by a team: its folder has no room for a journal, and its lessons count all the same."""
    path = tmp_path / "s.sqlite"
    with LessonStore(path) as store:
        store.add([lesson()])
    monkeypatch.setattr("egg.memory.store.os.access", lambda path, mode: False)
    with LessonStore(path, create=False) as store:
        assert store.lessons() == (lesson(),)
        with pytest.raises(MachineError, match="readonly"):
            store.add([lesson("other")])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s.sqlite"]


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    for use in (lambda: recall(tmp_path, scripts.FACTS), lambda: LessonStore(tmp_path)):
        with pytest.raises(LessonsError, match="no file"):
            use()


def test_where_a_users_lessons_are() -> None:
    assert default_store({"XDG_DATA_HOME": "/data", "HOME": "/home/a"}) == Path("/data/egg/lessons.sqlite")
    assert default_store({"HOME": "/home/a"}) == Path("/home/a/.local/share/egg/lessons.sqlite")
    relative = default_store({"XDG_DATA_HOME": "here", "HOME": "/home/a"})
    assert relative == Path("/home/a/.local/share/egg/lessons.sqlite")


def test_without_a_store_nothing_is_recalled(tmp_path: Path) -> None:
    assert recall(tmp_path / "s.sqlite", scripts.FACTS) == {}
    assert not (tmp_path / "s.sqlite").exists()


# -- between machines ------------------------------------------------------------------------------


def test_an_export_brings_everything_to_another_machine_once(tmp_path: Path) -> None:
    written = [lesson("r", n) for n in range(1, 6)]
    file = tmp_path / "lessons.jsonl"
    file.write_text(write_lines(written))
    assert json.loads(file.read_text().splitlines()[0]) == {"schema": "egg.lessons/1", "lessons": 5}
    assert read_lines(file) == tuple(written)
    other = tmp_path / "other.sqlite"
    with LessonStore(other) as store:
        store.add([lesson("q", 1), written[0]])
    assert is_store(other)
    assert not is_store(file)
    here = tmp_path / "here.sqlite"
    first = merge_lessons(here, [file, other])
    assert (first.read, first.added, first.known) == (7, 6, 1)
    assert merge_lessons(here, [other, file]).added == 0
    with LessonStore(here) as a, LessonStore(tmp_path / "turned.sqlite") as b:
        merge_lessons(tmp_path / "turned.sqlite", [other, file])
        assert a.lessons() == b.lessons()


def test_the_lessons_of_a_run_are_taken_in_from_its_folder_once(tmp_path: Path) -> None:
    """A run that was made elsewhere, or whose store failed, is not lost to memory."""
    store = tmp_path / "s.sqlite"
    ran(tmp_path / "run", scripts.FULL)
    assert merge_lessons(store, [tmp_path / "run", TRAJECTORIES / "wide_softmax"]).added > 6
    assert remember(tmp_path / "run", store) == 0
    with pytest.raises(EggError, match="no run"):
        merge_lessons(store, [tmp_path])


def test_an_export_is_never_written_over_a_store(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with LessonStore(store) as kept:
        kept.add([lesson()])
    with pytest.raises(LessonsError, match="is a store"):
        export_lessons(store, store)
    with LessonStore(store, create=False) as kept:
        assert len(kept) == 1


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda lines: lines[1:], "line 1"),
        (lambda lines: [*lines[:2], "{", *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], '{"run": 3}', *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], lines[2].replace("mapping", "cooking"), *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], lines[2].replace('"gain": 1.25', '"gain": "nan"'), *lines[3:]], "line 3"),
        (lambda lines: [*lines[:2], "[" * 100_000, *lines[3:]], "line 3"),
        (lambda lines: lines[:-1], "says it holds"),
        (lambda lines: [], "empty"),
    ],
)
def test_a_damaged_export_is_refused_whole_with_its_line(spoil: Any, line: str, tmp_path: Path) -> None:
    file, store = tmp_path / "x.jsonl", tmp_path / "s.sqlite"
    file.write_text("\n".join(spoil(write_lines([lesson("r", n) for n in range(1, 4)]).splitlines())))
    with pytest.raises(LessonsError, match=line) as caught:
        merge_lessons(store, [file])
    assert caught.value.hint
    assert not store.exists()


def test_pruning_by_age_by_count_and_by_version(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    days = [f"2026-03-{day:02d}T00:00:00.000Z" for day in range(1, 11)]
    other = replace(SIGNATURE, dtype="float16")
    with LessonStore(path) as store:
        store.add(lesson("r", n, when=when) for n, when in enumerate(days, 1))
        store.add([lesson("q", 1, signature=other, when=days[0], version="0.0.9")])
        assert store.prune() == 0
        assert store.prune(before=days[3], dry=True) == 4
        assert len(store) == 11
        assert store.prune(versions=("0.0.9",)) == 1
        assert store.prune(keep=8) == 2
        assert [x.step for x in store.lessons()] == [3, 4, 5, 6, 7, 8, 9, 10]
        assert store.prune(before=days[4], keep=5) == 3
        assert [x.step for x in store.lessons()] == [6, 7, 8, 9, 10]
    from datetime import UTC, datetime

    moment = datetime(2026, 3, 11, tzinfo=UTC)
    assert prune_lessons(path, days=3, now=moment) == 2
