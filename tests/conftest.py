"""Fixtures shared by the tests: a judge per test process, and a folder that shows what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import settings

from egg.core.evaluation import Evaluation, Gate
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.process.lasting import lasting
from egg.evaluator.trial.levels import LEVELS, LevelSettings
from tests import ledgers
from tests.ledger import SYSTEM, is_sorted
from tests.leftovers import Sandbox, sandboxed
from tests.warm import Kept, brief_full, warm_oracles

BRIEF = replace(LEVELS[Level.QUICK], call_seconds=20.0, build_seconds=30.0)
"""The settings most tests ask for: quick, with limits that end a hung candidate soon."""

LEFT_OUT = pytest.StashKey[int]()
OUTCOMES: dict[str, set[str]] = {}
"""Of the tests that ran, by file."""

JudgeFunction = Callable[..., Evaluation]

settings.register_profile("suite", max_examples=25)
settings.load_profile("suite")  # the whole run has ten minutes; `--hypothesis-profile default` looks longer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everything", action="store_true", help="run what passed before and has not changed, and record it"
    )
    parser.addoption(
        "--cached",
        action="store_true",
        help="leave out test files that passed with the same inputs",
    )
    parser.addoption("--quick", action="store_true", help="leave out the files that tests/slow.txt names")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick``, files that took five seconds or more on two cores: most start other processes."""
    if config.getoption("quick") and collection_path.is_file():
        return str(collection_path.relative_to(config.rootpath)) in slow_files() or None
    if config.getoption("cached") and not config.getoption("everything") and collection_path.is_file():
        unchanged = any(files.unchanged(collection_path) for files in ledgers.FILES)
        return (unchanged and not is_sorted(collection_path)) or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What test modules import lasts until the end: the garbage collector need not walk through it."""
    with lasting():
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of an unchanged file that marks what depends on the system, the other tests are left out."""
    if config.getoption("cached") and not config.getoption("everything"):
        mixed = {path for path in {item.path for item in items} if is_sorted(path)}
        unchanged = {path for path in mixed if any(files.unchanged(path) for files in ledgers.FILES)}
        left = [item for item in items if item.path in unchanged and item.get_closest_marker(SYSTEM) is None]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item not in set(left)]


@cache
def slow_files() -> frozenset[str]:
    return frozenset((Path(__file__).parent / "slow.txt").read_text().split())


def pytest_configure(config: pytest.Config) -> None:
    for checks in ledgers.ALL:
        checks.everything = config.getoption("everything")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    OUTCOMES.setdefault(report.nodeid.partition("::")[0], set()).add(report.outcome)


def record_files(config: pytest.Config) -> None:
    """The files of which every test was run and passed; not where a part of the tests was asked for."""
    whole = not config.option.keyword and not any("::" in arg for arg in config.args)
    if config.getoption("everything") and whole and not hasattr(config, "workerinput"):
        for name, outcomes in OUTCOMES.items():
            if outcomes == {"passed"}:
                for files in ledgers.FILES:
                    files.record(config.rootpath / name)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A worker of pytest-xdist hands its count to the process that prints the summary."""
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        record_files(session.config)
    left_out = sum(checks.left_out for checks in ledgers.ALL)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = left_out  # pyright: ignore[reportAttributeAccessIssue]
    else:
        session.config.stash[LEFT_OUT] = session.config.stash.get(LEFT_OUT, 0) + left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[LEFT_OUT] = node.config.stash.get(LEFT_OUT, 0) + left_out


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} checks of unchanged files that passed before were left out; --everything makes them"
        )
    if config.getoption("cached") and not config.getoption("everything"):
        files = sum(len(files.left_out()) for files in ledgers.FILES)
        terminalreporter.write_line(
            f"{files} test files that passed with the same inputs were left out; --everything runs them"
        )


@pytest.fixture(scope="session", autouse=True)
def no_knowledge_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the skills nor the lessons of whoever runs the tests; what a test's runs learn goes nowhere."""
    place = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(place / "data"))
        patch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """The tree of commands is built once: typer's runner would do so for every command that a test gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Shows what a test's processes leave behind. Pytest's own folders are made first, elsewhere."""
    tmp_path_factory.getbasetemp()
    with sandboxed() as place:
        yield place


@pytest.fixture(scope="session", autouse=True)
def kept_oracles(no_knowledge_of_the_user: None) -> Iterator[Kept]:
    """A command or a run of a test goes on with the oracle that the one before has closed."""
    with warm_oracles() as kept, brief_full():
        yield kept


@pytest.fixture
def new_oracles(kept_oracles: Kept) -> Iterator[None]:
    """For tests of how an oracle starts and ends: each has one of its own."""
    kept_oracles.active = False
    yield
    kept_oracles.active = True


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """One judge on the CPU for all tests of this process."""
    judge = Oracle("cpu")
    yield judge
    judge.close()


@pytest.fixture
def judged(oracle: Oracle) -> JudgeFunction:
    """Ask the judge: sources in, an evaluation out."""

    def ask(
        task: str | Task,
        kernel: str | Candidate,
        policy: Policy | None = None,
        *,
        skip: tuple[Gate, ...] = (),
        settings: LevelSettings = BRIEF,
        target: str | None = None,
    ) -> Evaluation:
        question = Question(
            task if isinstance(task, Task) else Task("small", task),
            kernel if isinstance(kernel, Candidate) else Candidate(kernel),
            policy or Policy(level=Level.QUICK),
            target,
            skip,
            settings,
        )
        return oracle.judge(question)

    return ask
