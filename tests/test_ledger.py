"""A check that passed is left out only where nothing that it depends on has changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ledger
from tests.bookkeeping import slow_files
from tests.ledger import Checks, Files


@pytest.fixture
def made() -> list[str]:
    return []


def checks(folder: Path, everything: bool = False, machinery: str = "runs it", share: int = 1) -> Checks:
    (folder / "machinery.py").write_text(machinery)
    ledger._hash.cache_clear()
    found = Checks(folder / "passed.txt", [folder / "machinery.py"], share)
    found.everything = everything
    return found


def test_what_passed_is_left_out_until_it_changes(tmp_path: Path, made: list[str]) -> None:
    checks(tmp_path, everything=True).once(lambda: made.append("recorded"), "file", 1)
    again = checks(tmp_path)
    again.once(lambda: made.append("the same"), "file", 1)
    again.once(lambda: made.append("another file"), "other", 1)
    again.once(lambda: made.append("another bound"), "file", 2)
    checks(tmp_path, machinery="runs it otherwise").once(lambda: made.append("another harness"), "file", 1)
    checks(tmp_path, everything=True).once(lambda: made.append("everything"), "file", 1)
    assert made == ["recorded", "another file", "another bound", "another harness", "everything"]
    assert again.left_out == 1


def test_of_what_passed_with_other_machinery_a_share_is_made_again(tmp_path: Path, made: list[str]) -> None:
    recording = checks(tmp_path, everything=True, share=4)
    for number in range(100):
        recording.once(lambda: None, number)
    drawn = []
    for machinery in ("runs it otherwise", "runs it in a third way"):
        sampling = checks(tmp_path, machinery=machinery, share=4)
        sampling.sampled = True
        made.clear()
        for number in range(101):
            sampling.once(lambda number=number: made.append(str(number)), number)
        assert made.pop() == "100", "it has never passed"
        assert 10 < len(made) < 45
        assert sampling.left_out == 100 - len(made)
        drawn.append(set(made))
    assert drawn[0] != drawn[1]
    whole = checks(tmp_path, machinery="runs it otherwise", share=4)
    whole.once(lambda: made.append("without a sample"), int(min({*map(str, range(100))} - drawn[0])))
    assert made[-1] == "without a sample"


def test_another_test_does_not_vouch_for_this_one(tmp_path: Path, made: list[str], monkeypatch) -> None:
    here = f"{Path(__file__)}::first (call)"
    monkeypatch.setenv("PYTEST_CURRENT_TEST", here)
    checks(tmp_path, everything=True).once(lambda: made.append("first"), "file")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", here.replace("first", "second"))
    checks(tmp_path).once(lambda: made.append("second"), "file")
    assert made == ["first", "second"]


def test_the_files_that_a_quick_run_leaves_out_are_there() -> None:
    root = Path(__file__).parent.parent
    assert [name for name in slow_files() if not (root / name).is_file()] == []


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], Files]:
    room = tmp_path / "room"
    room.mkdir()
    (tmp_path / "code.py").write_text("the code")
    (room / "test_it.py").write_text("import code")

    def inputs(path: str) -> list[str]:
        return [path, str(tmp_path / "code.py")]

    def anew() -> Files:
        ledger._hash.cache_clear()
        return Files(tmp_path, inputs, re.compile(r"import other"))

    return anew


def test_a_file_is_left_out_until_it_or_its_code_changes(tmp_path: Path, files: Callable[[], Files]) -> None:
    test = tmp_path / "room" / "test_it.py"
    assert not files().unchanged(test)
    files().record(test)
    assert files().left_out() == [test]
    assert (tmp_path / "room" / "data" / "files.json").is_file()
    test.write_text("import code  # otherwise")
    assert files().left_out() == []
    files().record(test)
    (tmp_path / "code.py").write_text("the code, otherwise")
    assert files().left_out() == []


def test_prose_voids_nothing_and_the_text_of_a_file_is_kept_apart(
    tmp_path: Path, files: Callable[[], Files]
) -> None:
    test = tmp_path / "tests" / "test_it.py"
    test.parent.mkdir()
    test.write_text("def test_it():\n    assert True\n")
    assert not files().is_text_unchanged(test)
    files().record(test)
    test.write_text('"""What it is about."""\n\n\ndef test_it():\n    assert True  # surely\n')
    assert files().left_out() == [test]
    (tmp_path / "code.py").write_text("the code, otherwise")
    assert files().left_out() == []
    assert files().is_text_unchanged(test)
    test.write_text("def test_it():\n    assert 1\n")
    assert not files().is_text_unchanged(test)


def test_a_file_that_needs_more_than_the_repository_always_runs(
    tmp_path: Path, files: Callable[[], Files]
) -> None:
    test = tmp_path / "room" / "test_it.py"
    test.write_text("import code, other\nimport other")
    files().record(test)
    files().record(tmp_path / "code.py")
    assert not files().unchanged(test)
    assert not (tmp_path / "room" / "data" / "files.json").exists()


def test_a_ledger_holds_in_another_clone(tmp_path: Path) -> None:
    def ledger_of(clone: Path) -> Files:
        return Files(clone / "tests", lambda path: [path, str(clone / "code.py")], re.compile("import other"))

    (tmp_path / "one" / "tests").mkdir(parents=True)
    (tmp_path / "one" / "code.py").write_text("the code")
    (tmp_path / "one" / "tests" / "test_it.py").write_text("import code")
    ledger_of(tmp_path / "one").record(tmp_path / "one" / "tests" / "test_it.py")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert ledger_of(tmp_path / "two").left_out() == [tmp_path / "two" / "tests" / "test_it.py"]


def test_files_outside_of_a_folder_are_in_the_ledger_above(
    tmp_path: Path, files: Callable[[], Files]
) -> None:
    (tmp_path / "test_all.py").write_text("import code")
    files().record(tmp_path / "test_all.py")
    assert json.loads((tmp_path / "data" / "files.json").read_text()).keys() == {"test_all.py"}
    assert files().left_out() == [tmp_path / "test_all.py"]


def test_nothing_is_recorded_of_a_check_that_failed_nor_without_being_asked(tmp_path: Path) -> None:
    def fail() -> None:
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        checks(tmp_path, everything=True).once(fail, "file")
    checks(tmp_path).once(lambda: None, "another")
    assert not (tmp_path / "passed.txt").exists()
