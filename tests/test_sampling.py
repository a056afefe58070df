"""`make test` runs a sample of what is dear: never less than it promises, another one for other code."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests import costs
from tests.bookkeeping import look_at_few
from tests.costs import FAMILY, SINGLE, SINGLES, Clock, Group, groups, short
from tests.ledger import Files
from tests.sampling import LEAST, Selection

FILE = "tests/room/test_it.py"


class Item:
    """A collected test, as far as a selection looks at it."""

    def __init__(self, name: str, mark: pytest.Mark | None = None) -> None:
        self.name, self.nodeid, self.path, self._mark = name, f"{FILE}::{name}", Path(FILE), mark

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._mark if self._mark is not None and self._mark.name == name else None


def members(count: int, mark: pytest.Mark | None = None) -> list[Item]:
    return [Item(f"test_all[{number}]", mark) for number in range(count)]


def cost(each: float, items: list[Item]) -> dict[str, Group]:
    return {f"{FILE}::test_all": Group(FAMILY, {short(item.nodeid): each for item in items})}


def drawn(items: list[Item], known: dict[str, Group], inputs: str = "one") -> set[str]:
    left = Selection(frozenset(), {FILE: inputs}).not_drawn(items, known)  # type: ignore[arg-type]
    return {item.name for item in items if item not in left}


def test_a_family_gets_the_members_it_can_afford() -> None:
    items = members(100)
    found = drawn(items, cost(FAMILY / 10, items))
    assert len(found) == 10
    assert drawn(items, cost(FAMILY / 10, items)) == found, "the same tree, the same sample"
    assert drawn(items, cost(FAMILY / 10, items), "two") != found, "other code, another sample"


def test_every_member_has_its_turn() -> None:
    items = members(20)
    known = cost(FAMILY / 5, items)
    assert set.union(*(drawn(items, known, str(change)) for change in range(60))) == {i.name for i in items}


def test_even_a_very_dear_family_has_some_members_and_a_mark_asks_for_more() -> None:
    assert len(drawn(members(30), cost(100 * FAMILY, members(30)))) == LEAST
    mark = pytest.mark.sampled(12).mark
    assert len(drawn(members(30, mark), cost(100 * FAMILY, members(30)))) == 12


def test_a_new_member_runs_and_so_does_all_of_a_file_whose_text_changed() -> None:
    before, now = members(30), members(40)
    assert {item.name for item in now[30:]} <= drawn(now, cost(100 * FAMILY, before))
    assert not Selection(frozenset(), {}).not_drawn(now, cost(100 * FAMILY, now))  # type: ignore[arg-type]


def test_a_selection_is_made_of_ledgers_and_survives_the_way_to_a_worker(tmp_path: Path) -> None:
    code, tests = tmp_path / "code.py", tmp_path / "tests"
    same, sampled, edited = (tests / f"test_{name}.py" for name in ("same", "sampled", "edited"))
    tests.mkdir()
    for path in (code, same, sampled, edited):
        path.write_text("x = 1")

    def files(depends: bool) -> Files:
        def inputs(path: str) -> list[str]:
            return [path, str(code)] if depends and "same" not in path else [path]

        return Files(tests, inputs, re.compile("never"))

    for path in (same, sampled):
        files(depends=False).record(path)
    selection = Selection.of(files(depends=True), [same, sampled, edited])
    assert selection.unchanged == {str(same)}
    assert selection.inputs.keys() == {str(sampled)}
    assert Selection.from_json(json.loads(json.dumps(selection.to_json()))) == selection
    assert selection.leaves_out(same)
    assert not selection.leaves_out(sampled)


def test_the_dearest_member_started_what_the_others_share() -> None:
    seconds = {f"{FILE}::test_all[{n}]": 20.0 if n == 0 else 0.1 for n in range(10)}
    assert groups(seconds) == {}, "leaving members out would save little"
    dear = {f"{FILE}::test_all[{n}]": FAMILY / 2 for n in range(10)}
    group = groups(dear)[f"{FILE}::test_all"]
    assert group.affordable(list(group.members), least=1) == 2
    assert groups({f"{FILE}::test_one": 100.0}) == {}


def test_single_tests_that_take_long_are_a_group_of_their_file() -> None:
    slow = {f"{FILE}::test_{n}": SINGLES / 2 for n in range(6)}
    found = groups({**slow, f"{FILE}::test_quick": SINGLE / 2})
    assert found.keys() == {f"{FILE}::"}
    items = [Item(f"test_{n}") for n in range(6)] + [Item("test_quick")]
    names = drawn(items, found)
    assert "test_quick" in names
    assert len(names) == 3


def test_costs_are_kept_of_files_that_did_not_run(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs.write(path, {f"tests/a.py::test[{n}]": 3.0 for n in range(4)})
    costs.write(path, {f"tests/b.py::test[{n}]": 5.0 for n in range(4)})
    assert costs.read(path).keys() == {"tests/a.py::test", "tests/b.py::test"}
    costs.write(path, {f"tests/a.py::test[{n}]": 0.0 for n in range(4)})
    assert costs.read(path).keys() == {"tests/b.py::test"}


def test_a_clock_sees_work_of_this_process_and_not_its_sleep() -> None:
    clock = Clock()
    time.sleep(0.3)
    clock.stop("sleeps")
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    clock.stop("works")
    clock.stop("nothing")
    assert clock.seconds["sleeps"] < 0.2 < 0.3 < clock.seconds["works"]
    assert clock.seconds["nothing"] < 0.1


def test_the_costs_that_are_kept_are_of_tests_that_are_there() -> None:
    root = Path(__file__).parents[1]
    for name in costs.read(root / "tests" / "data" / "costs.json"):
        file, _, test = name.partition("::")
        text = (root / file).read_text()
        assert not test or f"def {test.rpartition('::')[2]}(" in text, name


def test_hypothesis_looks_at_fewer_examples() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    seen: list[int] = []

    @settings(max_examples=300, database=None)
    @given(st.integers())
    def test_numbers(number: int) -> None:
        seen.append(number)

    item = Item("test_numbers")
    item.obj = test_numbers  # type: ignore[attr-defined]
    look_at_few(item)  # type: ignore[arg-type]
    test_numbers()
    assert 10 <= len(seen) <= 20
