"""A folder of skills of one's own, ``examples/skills``, beside those that ship: no code is needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from egg.cli.app import app

EXAMPLES = Path(__file__).parents[1] / "examples"
FOLDER = EXAMPLES / "skills"
WIDE = EXAMPLES / "wide_softmax" / "wide_softmax.py"
NEW, OVERRIDE = "rows-of-a-vocabulary", "online-softmax"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither skills nor lessons of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the folder, to be spoiled."""
    return Path(shutil.copytree(FOLDER, tmp_path / "own"))


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def why(*more: object, task: Path = WIDE) -> dict[str, dict[str, Any]]:
    """Every skill's verdict for the structure of a task on an H200."""
    ended = egg("skills", "why", task, "--target", "H200", "--stage", "structure", *more, "--json")
    assert ended.exit_code == 0, ended.output
    (stage,) = json.loads(ended.stdout)["stages"]
    return {one["skill"]: one for one in stage["skills"]}


def spoil(folder: Path, skill: str, was: str, becomes: str) -> tuple[Path, int]:
    """Change the one line that begins with ``was``; its file and number."""
    path = folder / skill / "SKILL.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.strip().startswith(was)]
    lines[number] = becomes
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path, number + 1


def test_a_new_skill_is_offered_with_its_reason_and_an_override_takes_its_place() -> None:
    before, after = why(), why("--skills", FOLDER)
    assert NEW not in before
    assert after[NEW]["offered"]
    assert after[NEW]["reason"] == "columns 50304 <= 57344"
    assert after[NEW]["origin"] == str(FOLDER)
    assert before[OVERRIDE]["offered"]
    assert before[OVERRIDE]["origin"] == "built-in"
    assert not after[OVERRIDE]["offered"]
    assert (after[OVERRIDE]["cause"], after[OVERRIDE]["reason"]) == ("gate", "columns 50304 <= 57344")
    assert after[OVERRIDE]["origin"] == str(FOLDER)
    assert after[OVERRIDE]["gain"] == [1.1, 1.6] != before[OVERRIDE]["gain"]
    others = before.keys() - {OVERRIDE}
    assert {name: before[name] for name in others} == {name: after[name] for name in others}


def test_without_the_folder_everything_is_as_before() -> None:
    before = why()
    why("--skills", FOLDER)
    assert why() == before


def test_what_the_new_skill_is_for_decides() -> None:
    narrow = EXAMPLES / "row_softmax" / "row_softmax.py"
    assert not why("--skills", FOLDER, task=narrow)[NEW]["offered"]
    printed = egg(
        "skills", "why", WIDE, "--target", "A100", "--stage", "structure", "--skills", FOLDER, "--json"
    )
    (stage,) = json.loads(printed.stdout)["stages"]
    (verdict,) = [one for one in stage["skills"] if one["skill"] == NEW]
    assert (verdict["cause"], verdict["reason"]) == ("hardware", "for sm_90, and the GPU is sm_80")


def test_show_says_whose_place_was_taken() -> None:
    shipped = json.loads(egg("skills", "show", OVERRIDE, "--json").stdout)
    ours = json.loads(egg("skills", "show", OVERRIDE, "--skills", FOLDER, "--json").stdout)
    assert ours["gate"] == "has_softmax and columns > 57344" != shipped["gate"]
    assert ours["origin"] == str(FOLDER)
    assert shipped["overrides"] == []
    (taken,) = ours["overrides"]
    assert taken.endswith(f"skills/{OVERRIDE}/SKILL.md")
    assert taken != ours["path"]


def test_the_folder_is_sound() -> None:
    assert egg("skills", "check", FOLDER).exit_code == 0


def test_the_users_own_folder_needs_no_option(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "config" / "egg" / "skills")
    assert why()[NEW]["offered"]


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ("stage:", "  stage: somewhere", "somewhere"),
        ("gain:", "  gain: much", "much"),
        ("gate:", "  gate: has_softmax and", "no condition"),
        ("categories:", "  categories: tile_shape", "tile_shape"),
        ("## How", "## Hoow", "Hoow"),
    ],
)
def test_a_malformed_skill_refuses_the_whole_folder_with_file_and_line(
    own: Path, was: str, becomes: str, message: str
) -> None:
    path, line = spoil(own, NEW, was, becomes)
    ended = egg("skills", "why", WIDE, "--skills", own)
    assert ended.exit_code == 2
    printed = ended.stderr.replace("\n", "").replace(" ", "")
    assert f"{path}:{line}:" in printed
    assert message.replace(" ", "") in printed
    found = json.loads(egg("skills", "check", own, "--json").stdout)["problems"]
    assert (str(path), line) in [(one["file"], one["line"]) for one in found]


@pytest.mark.parametrize(
    ("condition", "name", "near"),
    [("has_sofmax and rows > 1", "has_sofmax", "has_softmax"), ("colums > 57344", "colums", "columns")],
)
def test_an_unknown_name_in_a_condition_names_those_that_are_near(
    own: Path, condition: str, name: str, near: str
) -> None:
    path, line = spoil(own, OVERRIDE, "gate:", f"  gate: {condition}")
    ended = egg("skills", "why", WIDE, "--skills", own)
    assert ended.exit_code == 2
    printed = " ".join(ended.stderr.split())
    assert f"{path}:{line}:".replace(" ", "") in printed.replace(" ", "")
    assert name in printed
    assert near in printed
