"""What a run of the tests leaves out, what it records, and what it prints at its end: hooks of pytest.

With ``--cached`` (`make test`) a :class:`~tests.sampling.Selection` says which files and which members of
families run. With ``--everything`` (`make nightly`) all tests run, and the ledgers and costs are written. A
worker of pytest-xdist takes the selection over from the process that started it, and hands its counts back.
Files that take longest come first, so that workers which get whole files end at about the same time.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from tests import costs, ledgers
from tests.costs import Clock, Costs
from tests.sampling import Selection

LEFT_OUT = pytest.StashKey[int]()
NOT_DRAWN = pytest.StashKey[int]()
CLOCK = pytest.StashKey[Clock]()
SECONDS = pytest.StashKey[dict[str, float]]()
"""CPU seconds of the tests that ran, by their names."""
SHARED = pytest.StashKey[dict[str, Any]]()
"""The fixtures that were set up for several tests of a file, with what they took."""
SELECTION = pytest.StashKey[Selection]()
"""With ``--cached``: what is left out."""
OUTCOMES: dict[str, set[str]] = {}
"""Of the tests that ran, by file."""

EXAMPLES = 20
"""That a test with hypothesis looks at in `make test`; elsewhere as many as it asks for."""
settings.register_profile("suite", max_examples=25, deadline=None)  # a busy machine is no fault
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everything", action="store_true", help="run what passed before and has not changed, and record it"
    )
    parser.addoption(
        "--cached",
        action="store_true",
        help="leave out test files that passed with the same inputs, and members of groups that are dear",
    )
    parser.addoption("--quick", action="store_true", help="leave out the files that tests/slow.txt names")


def is_cached(config: pytest.Config) -> bool:
    return config.getoption("cached") and not config.getoption("everything")


def pytest_configure(config: pytest.Config) -> None:
    for checks in ledgers.ALL:
        checks.everything, checks.sampled = config.getoption("everything"), is_cached(config)
    if is_cached(config):
        given = getattr(config, "workerinput", {}).get("selection")
        config.stash[SELECTION] = (
            Selection.from_json(given)
            if given
            else Selection.of(ledgers.UNCHANGED, costs.read(ledgers.COSTS))
        )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of pytest-xdist takes over what this process found."""
    if SELECTION in node.config.stash:
        node.workerinput["selection"] = node.config.stash[SELECTION].to_json()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick``, files that took five seconds or more on two cores: most start other processes."""
    if config.getoption("quick") and collection_path.is_file():
        return str(collection_path.relative_to(config.rootpath)) in slow_files() or None
    if SELECTION in config.stash and collection_path.is_file():
        name = collection_path.relative_to(config.rootpath).as_posix()
        return config.stash[SELECTION].leaves_out(name, collection_path) or None
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests that run, in the order of what their files cost."""
    known = costs.read(ledgers.COSTS)
    leave_out(config, items, known)
    expected = known.expected(item.nodeid for item in items)
    items.sort(key=lambda item: -expected[item.nodeid.partition("::")[0]])


def leave_out(config: pytest.Config, items: list[pytest.Item], known: Costs) -> None:
    """Of an unchanged file, all but what depends on the system; of a sampled family, what is not drawn."""
    if SELECTION not in config.stash:
        return
    selection = config.stash[SELECTION]
    not_drawn = selection.not_drawn(items, known)
    config.stash[NOT_DRAWN] = len(not_drawn)
    left = selection.settled(items) | not_drawn
    if left:
        config.hook.pytest_deselected(items=sorted(left, key=lambda item: item.nodeid))
        items[:] = [item for item in items if item not in left]
    for item in items:
        look_at_few(item)


def look_at_few(item: pytest.Item) -> None:
    """Fewer examples for a test that hypothesis runs; the names of its attributes are those of its plugin."""
    test = getattr(item, "obj", None)
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if is_hypothesis_test(test) and given is not None and given.max_examples > EXAMPLES:
        test = getattr(test, "__func__", test)
        test._hypothesis_internal_use_settings = settings(given, max_examples=EXAMPLES)


@cache
def slow_files() -> frozenset[str]:
    return frozenset((Path(__file__).parent / "slow.txt").read_text().split())


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[CLOCK] = Clock()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    outcome = yield
    item.config.stash[CLOCK].stop(item.nodeid)
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Generator[None, object, object]:
    """What a fixture of a module takes is no cost of the test that comes first."""
    if fixturedef.scope != "module":
        return (yield)
    file, name = request.node.nodeid, fixturedef.argname
    users = [
        item.nodeid
        for item in request.session.items
        if item.nodeid.startswith(f"{file}::") and name in item.fixturenames
    ]
    with request.config.stash[CLOCK].apart(f"{file}::{name}", users):
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    OUTCOMES.setdefault(report.nodeid.partition("::")[0], set()).add(report.outcome)


def record_files(config: pytest.Config) -> None:
    """The files of which every test was run and passed; not where a part of the tests was asked for."""
    whole = not config.option.keyword and not any("::" in arg for arg in config.args)
    if config.getoption("everything") and whole and not hasattr(config, "workerinput"):
        for name, outcomes in OUTCOMES.items():
            if outcomes == {"passed"}:
                ledgers.UNCHANGED.record(config.rootpath / name)
            elif "failed" not in outcomes:
                ledgers.UNCHANGED.record_text(config.rootpath / name)
        costs.write(ledgers.COSTS, config.stash[SECONDS], config.stash[SHARED])
        if config.args == config.getini("testpaths"):
            ledgers.UNCHANGED.record_inputs(map(str, ledgers.UNCHANGED.all()))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A worker of pytest-xdist hands what it counted to the process that prints the summary."""
    config = session.config
    clock = config.stash.get(CLOCK, None)
    counted = {
        "left_out": sum(checks.left_out for checks in ledgers.ALL),
        "seconds": clock.seconds if clock else {},
        "shared": clock.shared if clock else {},
        "not_drawn": config.stash.get(NOT_DRAWN, 0),
    }
    if hasattr(config, "workeroutput"):
        config.workeroutput.update(counted)  # pyright: ignore[reportAttributeAccessIssue]
        return
    add(config, counted)
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        record_files(config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    add(node.config, getattr(node, "workeroutput", {}))


def add(config: pytest.Config, counted: Mapping[str, Any]) -> None:
    """What one process counted, to what the others did; all of them draw the same tests."""
    config.stash[NOT_DRAWN] = max(config.stash.get(NOT_DRAWN, 0), counted.get("not_drawn", 0))
    config.stash[LEFT_OUT] = config.stash.get(LEFT_OUT, 0) + counted.get("left_out", 0)
    config.stash[SECONDS] = {**config.stash.get(SECONDS, {}), **counted.get("seconds", {})}
    config.stash[SHARED] = {**config.stash.get(SHARED, {}), **counted.get("shared", {})}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(
            f"{left_out} checks of unchanged files that passed before were left out; --everything makes them"
        )
    shared = {name: spent for name, (spent, _) in config.stash.get(SHARED, {}).items()}
    spent = costs.by_folder({**config.stash.get(SECONDS, {}), **shared})
    if sum(spent.values()) > 60.0:
        rows = ", ".join(f"{folder} {seconds:.0f}" for folder, seconds in spent.items() if seconds >= 1.0)
        terminalreporter.write_line(f"{sum(spent.values()):.0f} CPU seconds of tests: {rows}")
    if SELECTION in config.stash:
        files, tests = len(config.stash[SELECTION].unchanged), config.stash.get(NOT_DRAWN, 0)
        terminalreporter.write_line(
            f"{files} test files that passed with the same inputs and {tests} tests of"
            " dear groups that were not drawn were left out; --everything runs them"
        )
