"""``egg report`` from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from egg.cli.app import app
from tests.report.made import SOFTMAX, many_rows


def egg(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SOFTMAX, tmp_path / "run"))


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in many_rows(12)))
    return folder


@pytest.mark.parametrize(("words", "name"), [((), "html"), (("--md",), "md"), (("--csv",), "csv")])
def test_a_report_lies_beside_what_it_reports_on(
    run: Path, bench: Path, words: tuple[str, ...], name: str
) -> None:
    for folder, kind in ((run, "run"), (bench, "bench")):
        done = egg(folder, *words)
        assert done.exit_code == 0, done.output
        assert f"{kind} report" in done.output
        assert (folder / f"report.{name}").stat().st_size > 500


def test_a_report_goes_where_it_is_told_to(run: Path, tmp_path: Path) -> None:
    assert egg(run, "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    printed = egg(run, "--csv", "--out", "-")
    assert printed.output.startswith("run,task,step,")
    assert not list(run.glob("report.*"))


def test_a_program_is_told_what_was_written(run: Path) -> None:
    printed = json.loads(egg(run, "--json").output)
    assert printed["schema"] == "egg.report/1"
    assert (printed["kind"], printed["name"], printed["form"]) == ("run", "wide_softmax", "html")
    assert Path(printed["file"]).stat().st_size == printed["bytes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-run",), "no such run or bench"),
        ((".", "--md", "--csv"), "two forms"),
        ((".", "--json", "--out", "-"), "both print"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(words: tuple[str, ...], message: str) -> None:
    done = egg(*words)
    assert done.exit_code == 2
    assert message in done.output
    assert "hint:" in done.output


def test_a_folder_that_is_neither_says_what_would_be(tmp_path: Path) -> None:
    done = egg(tmp_path)
    assert done.exit_code == 2
    assert "neither a run nor a bench" in done.output
    assert "rows.jsonl" in done.output
