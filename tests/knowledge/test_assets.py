"""Every pattern beside a built-in skill is run against its own reference and compiled for the GPUs it is for.

The folder says what there is: a pattern is tried from the day it is written, and again when it changes. One
pair of processes per test process tries them all, since importing torch for each would take longer than
running it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.api import patterns as api_patterns
from egg.api.patterns import Pattern, patterns_in, problems_of, targets_of
from egg.cli.app import app
from egg.evaluator.process import patterns as evaluator_patterns
from egg.evaluator.process.patterns import PatternRunner
from egg.knowledge.catalogue import built_in_folder
from egg.knowledge.check import examine
from tests.knowledge.folders import write_skill
from tests.knowledge.patterns import BROKEN, RIGHT, write_pattern
from tests.ledger import Ledger, key_of

PATTERNS = patterns_in([built_in_folder()])
PASSED = Ledger(Path(__file__).parent / "data" / "passed.json")


@pytest.fixture(scope="session")
def runner() -> Iterator[PatternRunner]:
    with PatternRunner() as started:
        yield started


def some_gpus(number: int, pattern: Pattern) -> Pattern:
    """For one of its GPUs, the next pattern for the next; `egg skills check` compiles each for all."""
    return replace(pattern, gpus=(pattern.gpus[number % len(pattern.gpus)],))


def key(pattern: Pattern) -> str:
    """Of all that decides whether the pattern passes."""
    tried_by = (Path(str(module.__file__)).read_text() for module in (api_patterns, evaluator_patterns))
    return key_of(pattern.file.read_text(), *(gpu.arch for gpu in pattern.gpus), *tried_by)


@pytest.mark.parametrize("number", range(len(PATTERNS)), ids=[pattern.name for pattern in PATTERNS])
def test_a_built_in_pattern_works(
    number: int, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> None:
    pattern = some_gpus(number, PATTERNS[number])
    everything = pytestconfig.getoption("everything")
    if not everything and PASSED.unchanged(pattern.name, key(pattern)):
        pytest.skip("passed before and has not changed since; --everything runs it")
    runner = request.getfixturevalue("runner")
    assert [str(problem) for problem in problems_of(pattern, runner)] == []
    if everything:
        PASSED.record(pattern.name, key(pattern))


def test_the_ledger_knows_what_has_changed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "passed.json")
    pattern = PATTERNS[0]
    ledger.record(pattern.name, key(pattern))
    assert ledger.unchanged(pattern.name, key(pattern))
    copy = tmp_path / "copy.py"
    copy.write_text(pattern.file.read_text() + "\n")
    assert not ledger.unchanged(pattern.name, key(replace(pattern, file=copy)))
    assert not ledger.unchanged(pattern.name, key(replace(pattern, gpus=())))


def test_the_ledger_names_no_pattern_that_is_gone() -> None:
    assert PASSED.passed().keys() <= {pattern.name for pattern in PATTERNS}


def test_every_usual_gpu_is_compiled_for() -> None:
    compiled = {some_gpus(number, pattern).gpus[0].arch for number, pattern in enumerate(PATTERNS)}
    assert compiled >= {"sm_80", "sm_90", "gfx942"}


def test_no_asset_is_left_out() -> None:
    on_disk = set(built_in_folder().glob("*/assets/*.py"))
    assert {pattern.file for pattern in PATTERNS} == on_disk
    assert len(on_disk) > 20


def test_a_pattern_that_is_right(tmp_path: Path, runner: PatternRunner) -> None:
    write_pattern(tmp_path, "twice", RIGHT)
    (pattern,) = patterns_in([tmp_path])
    assert [gpu.arch for gpu in pattern.gpus] == ["sm_80", "sm_90", "gfx942"]
    assert problems_of(pattern, runner) == ()


@pytest.mark.parametrize("fault", BROKEN)
def test_a_pattern_that_is_wrong(fault: str, tmp_path: Path, runner: PatternRunner) -> None:
    old, new, reason = BROKEN[fault]
    assert RIGHT.count(old) == 1
    source = RIGHT.replace(old, new)
    asset = write_pattern(tmp_path, "twice", source, hardware="sm_90")
    (pattern,) = patterns_in([tmp_path])
    problems = problems_of(pattern, runner)
    assert problems
    assert any(problem.message.startswith(reason) for problem in problems), problems
    assert {problem.file for problem in problems} == {asset}


def test_what_one_pattern_did_is_not_held_against_the_next(tmp_path: Path, runner: PatternRunner) -> None:
    """They share a process, and one that works may still spoil it for others."""
    asset = write_pattern(tmp_path, "twice", RIGHT, hardware="sm_90")
    (pattern,) = patterns_in([tmp_path])
    spoils = (
        RIGHT.replace("torch.empty_like(x)", "kept(x)")
        + "\nkept, torch.empty_like = torch.empty_like, None\n"
    )
    for source in (spoils, RIGHT):
        asset.write_text(source, encoding="utf-8")
        assert problems_of(pattern, runner) == ()


def test_a_fault_is_told_with_its_line(tmp_path: Path, runner: PatternRunner) -> None:
    source = RIGHT.replace("2 * x, mask", "tl.dot(x, x), mask")
    write_pattern(tmp_path, "twice", source, hardware="gfx942")
    (pattern,) = patterns_in([tmp_path])
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "tl.dot" in text)
    assert line in [problem.line for problem in problems_of(pattern, runner)]


@pytest.mark.parametrize(
    ("hardware", "archs"),
    [
        ("any", ["sm_80", "sm_90", "gfx942"]),
        ("nvidia", ["sm_80", "sm_90"]),
        ("sm_90+", ["sm_90"]),
        ("amd", ["gfx942"]),
        ("sm_100", ["sm_100"]),
        ("sm_11", []),
    ],
)
def test_targets_are_those_of_the_skill(hardware: str, archs: list[str], tmp_path: Path) -> None:
    skill = examine(write_skill(tmp_path, "some", hardware=hardware).parent, "here").skill
    assert skill is not None
    assert [gpu.arch for gpu in targets_of(skill)] == archs


def test_check_runs_a_users_patterns(
    tmp_path: Path, runner: PatternRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``--run`` nothing is run: the file that is wrong is well formed."""
    monkeypatch.setattr("egg.api.patterns.PatternRunner", lambda: contextlib.nullcontext(runner))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    asset = write_pattern(tmp_path / "own", "twice", RIGHT.replace("2 * x, mask", "3 * x, mask"))
    check = ["skills", "check", str(tmp_path / "own")]
    assert CliRunner().invoke(app, check).exit_code == 0
    ended = CliRunner().invoke(app, [*check, "--run"])
    assert ended.exit_code == 1, ended.output
    assert f"{asset}:1: pattern.wrong: output 0 is wrong" in ended.stdout.replace("\n", "")
    assert "1 skill, 1 pattern run: 1 fault" in ended.stdout
    printed = json.loads(CliRunner().invoke(app, [*check, "--run", "--json"]).stdout)
    assert (printed["patterns"], len(printed["problems"])) == (1, 1)
    asset.write_text(RIGHT, encoding="utf-8")
    assert CliRunner().invoke(app, [*check, "--run"]).exit_code == 0
