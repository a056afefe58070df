"""``egg lessons``: what runs have learned, listed, shown, carried, merged and forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.cli.app import app
from egg.core.stage import Stage
from egg.memory.lessons import Verdict
from egg.memory.store import LessonStore
from tests.memory.test_lessons import SIGNATURE, lesson


def egg(*arguments: object):
    return CliRunner().invoke(app, ["lessons", *(str(a) for a in arguments)])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "egg" / "lessons.sqlite"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "some.sqlite"
    refused = {"verdict": Verdict.REFUSED, "failure": "build: build.compile", "gain": None, "after": None}
    with LessonStore(path) as kept:
        kept.add(
            [
                lesson("one", 1, stage=Stage.SEED, skill=None, category=None, gain=None, before=None),
                lesson("one", 2),
                lesson("two", 2, **refused),
                lesson("two", 3, stage=Stage.TILING, skill="deeper-pipeline", version="0.0.9"),
            ]
        )
    return path


def test_without_a_run_there_is_nothing_and_nothing_is_made(home: Path) -> None:
    found = egg("list")
    assert found.exit_code == 0
    assert "no lessons" in found.stdout
    assert not home.exists()
    assert json.loads(egg("list", "--json").stdout) == {"store": str(home), "lessons": 0, "skills": []}


def test_the_store_goes_by_one_name_and_the_former_one_still_works(store: Path) -> None:
    named = egg("list", "--lessons", store, "--json")
    assert named.exit_code == 0, named.output
    assert egg("list", "--store", store, "--json").stdout == named.stdout
    assert egg("list", f"--store={store}", "--json").stdout == named.stdout
    printed = egg("list", "--help").stdout
    assert "--lessons" in printed
    assert "--store" not in printed


def test_list_says_for_every_skill_what_came_of_it(store: Path) -> None:
    found = egg("list", "--lessons", store)
    assert found.exit_code == 0
    assert "split-k" in found.stdout
    assert "1.25x" in found.stdout
    assert "4 lessons of 2 runs" in found.stdout
    rows = json.loads(egg("list", "--lessons", store, "--json").stdout)["skills"]
    row = next(row for row in rows if row["skill"] == "split-k")
    assert (row["tried"], row["worked"], row["refused"], row["gain"]) == (2, 1, 1, pytest.approx(1.25))
    assert [row["stage"] for row in rows] == ["seed", "mapping", "tiling"]
    one = json.loads(egg("list", "--lessons", store, "--stage", "tiling", "--json").stdout)
    assert one["lessons"] == 1


def test_show_tells_each_lesson_of_a_skill_or_a_run(store: Path) -> None:
    found = egg("show", "split-k", "--lessons", store)
    assert found.exit_code == 0
    for words in ("softmax:1", "1.250x (1 ms -> 0.8 ms)", "refused: build: build.compile", "NVIDIA H200"):
        assert words in found.stdout
    printed = json.loads(egg("show", "two", "--lessons", store, "--json").stdout)["lessons"]
    assert [(x["run"], x["step"]) for x in printed] == [("two", 2), ("two", 3)]


def test_what_is_exported_here_is_imported_there_once(store: Path, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "lessons.jsonl"
    assert "4 lessons" in egg("export", file, "--lessons", store).stdout
    assert json.loads(egg("import", file, "--json").stdout) == {"read": 4, "added": 4, "known": 0}
    assert "0 lessons added, 4 known already" in egg("import", file).stdout
    assert "4 lessons of 2 runs" in egg("list").stdout
    with LessonStore(home) as ours, LessonStore(store) as theirs:
        assert ours.lessons() == theirs.lessons()


def test_exports_and_stores_are_merged_alike(store: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "lessons.jsonl", tmp_path / "other.sqlite"
    with LessonStore(other) as kept:
        kept.add([lesson("three", 1)])
    egg("export", file, "--lessons", store)
    found = egg("merge", file, other, store, "--json")
    assert json.loads(found.stdout) == {"read": 9, "added": 5, "known": 4}


def test_a_damaged_file_stops_a_merge_before_anything_is_written(
    store: Path, home: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("hello\n")
    found = egg("merge", store, bad, "--json")
    assert found.exit_code == 2
    assert json.loads(found.stdout.splitlines()[-1])["error"] == "usage"
    assert "line 1" in found.stderr
    assert not home.exists()


def test_prune_forgets_what_it_is_told_to(store: Path) -> None:
    dry = egg("prune", "--version", "0.0.9", "--dry-run", "--lessons", store)
    assert "would forget 1 lesson" in dry.stdout
    assert json.loads(egg("prune", "--version", "0.0.9", "--lessons", store, "--json").stdout)["pruned"] == 1
    assert "forgot 1 lesson" in egg("prune", "--keep", 1, "--lessons", store).stdout
    with LessonStore(store) as kept:
        kept.add([replace(lesson("new", 1), when="2999-01-01T00:00:00.000Z", signature=SIGNATURE)])
    assert "forgot 2 lessons" in egg("prune", "--older-than", 1, "--lessons", store).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--lessons", "nowhere.sqlite"),
        ("list", "--stage", "cooking"),
        ("show", "unheard-of"),
        ("export", "x.jsonl"),
        ("import", "nowhere.jsonl"),
        ("prune",),
        ("prune", "--older-than", "nan"),
        ("prune", "--keep", "-1"),
    ],
)
def test_mistakes_are_told_with_a_hint(
    arguments: tuple[str, ...], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = egg(*arguments)
    assert found.exit_code == 2
    assert "hint: " in found.stderr
    assert not home.exists()


def test_a_damaged_store_is_told_and_left_as_it_is(home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_bytes(b"no database at all" * 100)
    for arguments in (("list",), ("export", "x.jsonl"), ("prune", "--keep", "1")):
        found = egg(*arguments)
        assert found.exit_code == 2
        assert "damaged" in found.stderr
    assert home.read_bytes() == b"no database at all" * 100
