"""``egg skills``: what is known, whether it is sound, why it is offered; and runs that are offered it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from egg.api.runs import state_of
from egg.cli.app import app
from tests.knowledge.folders import write_skill

EXAMPLES = Path(__file__).parents[1] / "examples"
TASK = EXAMPLES / "linear_gelu_residual" / "linear_gelu_residual.py"
SOFTMAX = EXAMPLES / "row_softmax" / "row_softmax.py"
KERNEL = EXAMPLES / "row_softmax" / "fused.py"


@pytest.fixture(autouse=True)
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small catalogue in the place of the package's own."""
    place = tmp_path / "built-in"
    write_skill(place, "epilogue", gate="has_product and pointwise_gain > 1.05", families="product")
    write_skill(place, "convolve", gate="true", families="convolution")
    write_skill(place, "tile", stage="tiling", categories="tile_shape", gate="has_base", hardware="nvidia")
    write_skill(place, "masks", stage="debugging", signature="correctness")
    monkeypatch.setattr("egg.knowledge.catalogue.built_in_folder", lambda: place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return place


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """One new skill and one override."""
    place = tmp_path / "team"
    write_skill(place, "ours", gate="rows > 1024", gain="2-4")
    write_skill(place, "epilogue", gate="rows > 1000000")
    return place


def egg(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def data(*arguments: object, code: int = 0) -> dict[str, Any]:
    ended = egg(*arguments, "--json")
    assert ended.exit_code == code, ended.output
    return json.loads(ended.stdout)


def verdicts(printed: dict[str, Any], stage: str = "structure") -> dict[str, dict[str, Any]]:
    (found,) = [one for one in printed["stages"] if one["stage"] == stage]
    return {one["skill"]: one for one in found["skills"]}


def test_list() -> None:
    printed = data("skills", "list")
    assert [one["name"] for one in printed["skills"]] == ["convolve", "epilogue", "masks", "tile"]
    assert [s["name"] for s in data("skills", "list", "--stage", "tiling")["skills"]] == ["tile"]
    assert "tile" not in egg("skills", "list", "--target", "MI300X").stdout
    assert "4 skills of 4" in egg("skills", "list").stdout


def test_show(team: Path) -> None:
    shown = egg("skills", "show", "epilogue", "--skills", team)
    assert shown.exit_code == 0
    assert "rows > 1000000" in shown.stdout
    assert "instead of" in shown.stdout
    assert "## When" in shown.stdout
    printed = data("skills", "show", "epilogue")
    assert printed["gate"] == "has_product and pointwise_gain > 1.05"
    assert printed["overrides"] == []


def test_a_name_that_is_nearly_one() -> None:
    ended = egg("skills", "show", "epilog")
    assert ended.exit_code == 2
    assert "did you mean epilogue?" in ended.stderr


def test_check_names_file_and_line(built_in: Path, tmp_path: Path) -> None:
    assert egg("skills", "check").exit_code == 0
    assert "4 skills: nothing is wrong" in egg("skills", "check").stdout
    path = write_skill(tmp_path / "bad", "wrong", gate="no_such_name > 1")
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "no_such_name" in text)
    printed = data("skills", "check", tmp_path / "bad", code=1)
    assert printed["skills"] == 1
    (problem,) = printed["problems"]
    assert (problem["file"], problem["line"]) == (str(path), line)
    assert "no_such_name" in problem["message"]
    assert f"{path}:{line}: " in egg("skills", "check", tmp_path / "bad").stdout.replace("\n", "")
    refused = egg("skills", "list", "--skills", tmp_path / "bad")
    assert refused.exit_code == 2
    assert egg("skills", "check", tmp_path / "nowhere").exit_code == 2


def test_check_of_a_folder_is_of_that_folder(
    built_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_skill(tmp_path / "config" / "egg" / "skills", "wrong", gate="no_such_name > 1")
    write_skill(tmp_path / "good", "right")
    assert data("skills", "check", tmp_path / "good")["skills"] == 1
    assert egg("skills", "check").exit_code == 1


def test_why_says_it_of_every_skill() -> None:
    printed = data("skills", "why", TASK, "--target", "H200")
    assert printed["schema"] == "egg.skills-why/1"
    found = verdicts(printed)
    assert found["epilogue"]["offered"]
    assert found["epilogue"]["score"] > 0
    assert found["convolve"]["cause"] == "family"
    tiling = verdicts(printed, "tiling")["tile"]
    assert (tiling["cause"], tiling["reason"]) == ("gate", "not has_base")
    assert printed["context"]["has_product"] is True
    text = egg("skills", "why", TASK, "--target", "H200").stdout
    assert "structure: 1 of 2 skills offered" in text
    assert "no convolution in the program" in text


def test_a_users_folder_changes_why_without_code(team: Path) -> None:
    before = verdicts(data("skills", "why", TASK))
    after = verdicts(data("skills", "why", TASK, "--skills", team))
    assert "ours" not in before
    assert after["ours"]["offered"]
    assert after["ours"]["reason"] == "rows 4096 > 1024"
    assert before["epilogue"]["offered"]
    assert (after["epilogue"]["offered"], after["epilogue"]["reason"]) == (False, "rows 4096 <= 1000000")
    assert after["epilogue"]["origin"] == str(team.resolve())


def test_why_with_a_kernel_reads_it() -> None:
    printed = data("skills", "why", SOFTMAX, KERNEL, "--target", "H200", "--stage", "tiling")
    assert [one["stage"] for one in printed["stages"]] == ["tiling"]
    assert verdicts(printed, "tiling")["tile"]["offered"]
    assert printed["candidate"] == "fused"


def test_why_with_a_failure() -> None:
    printed = data("skills", "why", SOFTMAX, "--failure", "correctness.error")
    assert verdicts(printed, "debugging")["masks"]["offered"]


@pytest.mark.parametrize("wrong", [("--stage", "nowhere"), ("--target", "none"), ("--skills", "/no/where")])
def test_wrong_options(wrong: tuple[str, str]) -> None:
    assert egg("skills", "why", SOFTMAX, *wrong).exit_code == 2


def test_a_run_records_its_folders_and_is_offered_from_them(team: Path, tmp_path: Path) -> None:
    write_skill(team, "first", stage="seed", categories="operator_fusion")
    place = tmp_path / "run"
    terms = ("--team", "step", "--device", "cpu", "--target", "H200", "--out", place)
    assert egg("optimize", SOFTMAX, *terms, "--skills", team).exit_code == 0
    assert state_of(place).started.settings.skills == (str(team.resolve()),)
    asked = egg("next", place).stdout
    assert "What first does." in asked


def test_a_run_without_skills(team: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    terms = ("--team", "step", "--device", "cpu", "--target", "H200", "--out", place)
    assert egg("optimize", SOFTMAX, *terms, "--no-skills").exit_code == 0
    assert state_of(place).started.settings.skills is None
    assert egg("optimize", SOFTMAX, *terms, "--no-skills", "--skills", team).exit_code == 2
