"""Fixtures shared by the tests: a judge per test process, and a folder that shows what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import cache

import pytest
import typer.testing

from egg.core.evaluation import Evaluation, Gate
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.process.lasting import lasting
from egg.evaluator.trial.levels import LEVELS, LevelSettings
from tests.leftovers import Sandbox, sandboxed
from tests.warm import Kept, brief_full, warm_oracles

BRIEF = replace(LEVELS[Level.QUICK], call_seconds=20.0, build_seconds=30.0)
"""The settings most tests ask for: quick, with limits that end a hung candidate soon."""

pytest_plugins = ["tests.bookkeeping"]

JudgeFunction = Callable[..., Evaluation]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What test modules import lasts until the end: the garbage collector need not walk through it."""
    with lasting():
        return (yield)


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
