"""`make test` runs a sample of what is dear: never less than it promises, another one for other code."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from tests import costs, ledger
from tests.bookkeeping import look_at_few
from tests.costs import FAMILY, SINGLE, SINGLES, Clock, Costs, Group, Shared, measured, short
from tests.ledger import Files
from tests.ledgers import SHARE
from tests.sampling import FAR, LEAST, NEAR, Drawing, Selection

FILE = "tests/room/test_it.py"


class Item:
    """A collected test, as far as a selection looks at it."""

    def __init__(self, name: str) -> None:
        self.name, self.nodeid, self.path = name, f"{FILE}::{name}", Path(FILE)

    def get_closest_marker(self, name: str) -> None:
        return None


def members(count: int) -> list[Item]:
    return [Item(f"test_all[{number}]") for number in range(count)]


def cost(each: float, items: list[Item]) -> Costs:
    return Costs({f"{FILE}::test_all": Group(FAMILY, {short(item.nodeid): each for item in items})}, {})


def drawn(items: list[Item], known: Costs, inputs: str = "one", weight: float = FAR) -> set[str]:
    selection = Selection(frozenset(), {FILE: Drawing(inputs, weight)})
    left = selection.not_drawn(items, known)  # type: ignore[arg-type]
    return {item.name for item in items if item not in left}


def test_the_cost_of_a_file_is_the_same_number_in_whatever_order_its_tests_are_added() -> None:
    """Ten tenths, added one by one, are less than one: workers that sort by such sums would differ."""
    items = members(10)
    assert cost(0.1, items).expected(item.nodeid for item in items) == {FILE: 1.0}


def test_a_family_gets_the_members_it_can_afford() -> None:
    items = members(100)
    found = drawn(items, cost(FAMILY / 8, items))
    assert len(found) == 8
    assert drawn(items, cost(FAMILY / 8, items)) == found, "the same tree, the same sample"
    assert drawn(items, cost(FAMILY / 8, items), "two") != found, "other code, another sample"
    assert len(drawn(items, cost(FAMILY / 8, items), weight=NEAR)) == 32


def test_every_member_has_its_turn() -> None:
    items = members(20)
    known = cost(FAMILY / 5, items)
    assert set.union(*(drawn(items, known, str(change)) for change in range(60))) == {i.name for i in items}


def test_near_a_change_even_a_very_dear_family_has_some_members() -> None:
    assert len(drawn(members(30), cost(100 * FAMILY, members(30)), weight=NEAR)) == LEAST[NEAR]


def test_far_from_it_a_group_costs_its_limit_on_average() -> None:
    items = members(30)
    known = cost(4 * FAMILY, items)
    runs = [len(drawn(items, known, str(change))) for change in range(400)]
    assert set(runs) == {0, 1}
    assert 60 < sum(runs) < 140, "one in four"
    lone = Costs({f"{FILE}::": Group(SINGLES, {short(f"{FILE}::test_one"): 4 * SINGLES})}, {})
    assert {len(drawn([Item("test_one")], lone, str(change))) for change in range(50)} == {0, 1}


def test_a_new_member_runs_and_so_does_all_of_a_file_whose_text_changed() -> None:
    before, now = members(30), members(40)
    assert {item.name for item in now[30:]} <= drawn(now, cost(100 * FAMILY, before))
    assert not Selection(frozenset(), {}).not_drawn(now, cost(100 * FAMILY, now))  # type: ignore[arg-type]


class Tree:
    """Test files, and the modules they use: ``near`` imports ``code``, ``far`` something above it."""

    def __init__(self, folder: Path) -> None:
        self.tests, self.code, self.above = folder / "tests", folder / "code.py", folder / "above.py"
        self.tests.mkdir()
        self.near, self.far, self.same, self.edited = (
            self.tests / f"test_{name}.py" for name in ("near", "far", "same", "edited")
        )
        for path in (self.code, self.above, self.near, self.far, self.same, self.edited):
            path.write_text("x = 1")
        files = self.files()
        for path in files.all():
            files.record(path)
        files.record_inputs(map(str, files.all()))

    def files(self) -> Files:
        ledger._hash.cache_clear()
        return Files(self.tests, self._inputs, re.compile("never"), direct=self._direct)

    def _inputs(self, path: str) -> list[str]:
        return [path] if "same" in path else [path, str(self.code), str(self.above)]

    def _direct(self, path: str) -> list[str]:
        return [str(self.code if "near" in path else self.above)]

    def costs(self, each: float) -> Costs:
        groups = {
            f"tests/{path.name}::test_all": Group(FAMILY, {short(str(n)): each for n in range(10)})
            for path in (self.near, self.far, self.same, self.edited)
        }
        return Costs(groups, {"tests/test_far.py": 1.0})


def test_a_selection_is_made_of_ledgers_and_survives_the_way_to_a_worker(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.code.write_text("x = 2")
    tree.edited.write_text("x = 3")
    selection = Selection.of(tree.files(), tree.costs(1.0))
    assert selection.unchanged == {"tests/test_same.py"}
    weights = {name: drawing.weight for name, drawing in selection.drawings.items()}
    assert weights == {"tests/test_near.py": NEAR, "tests/test_far.py": FAR}
    assert Selection.from_json(json.loads(json.dumps(selection.to_json()))) == selection
    assert selection.leaves_out("tests/test_same.py", tree.same)
    assert not selection.leaves_out("tests/test_far.py", tree.far)


def test_the_less_time_there_is_the_fewer_members_run(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.code.write_text("x = 2")

    def scale(budget: float) -> float:
        return Selection.of(tree.files(), tree.costs(1.0), budget).drawings["tests/test_far.py"].scale

    assert scale(1000.0) == 1.0
    assert 0.0 < scale(3.0) < scale(12.0) < 1.0
    crowded = Selection.of(tree.files(), tree.costs(1.0), 1.5).drawings
    assert {drawing.weight for drawing in crowded.values()} == {FAR}, "no room for the least near the change"


def test_the_dearest_member_started_what_the_others_share() -> None:
    seconds = {f"{FILE}::test_all[{n}]": 20.0 if n == 0 else 0.01 for n in range(10)}
    assert not measured(seconds).groups, "leaving members out would save little"
    assert measured(seconds).rest == {FILE: 20.1}
    dear = {f"{FILE}::test_all[{n}]": FAMILY / 2 for n in range(10)}
    group = measured(dear).groups[f"{FILE}::test_all"]
    assert group.affordable(list(group.members), 1.0, least=1, lot=0.5) == 2
    assert group.spends(1.0, least=1) == FAMILY


def test_single_tests_that_take_long_are_a_group_of_their_file() -> None:
    slow = {f"{FILE}::test_{n}": SINGLES / 2 for n in range(6)}
    found = measured({**slow, f"{FILE}::test_quick": SINGLE / 2})
    assert found.groups.keys() == {f"{FILE}::"}
    assert found.rest == {FILE: SINGLE / 2}
    items = [Item(f"test_{n}") for n in range(6)] + [Item("test_quick")]
    names = drawn(items, found)
    assert "test_quick" in names
    assert len(names) == 3


def test_tests_that_share_a_dear_fixture_run_together_or_not_at_all() -> None:
    items = [Item(f"test_{n}") for n in range(4)]
    users = [item.nodeid for item in items[:3]]
    known = measured(
        {item.nodeid: 0.1 for item in items},
        {f"{FILE}::started": (4 * SINGLES, users), f"{FILE}::f": (0.5, users)},
    )
    assert known.shared.keys() == {f"{FILE}::started"}
    assert known.rest == {FILE: 0.9}, "what takes little is no reason to leave tests out"
    runs = [frozenset(drawn(items, known, str(change))) for change in range(400)]
    assert set(runs) == {frozenset({"test_3"}), frozenset({"test_0", "test_1", "test_2", "test_3"})}
    assert 60 < sum(len(names) == 4 for names in runs) < 140, "one in four"
    assert len(drawn(items, known, weight=NEAR)) == 4


def test_a_shared_fixture_counts_once_and_only_where_a_test_asks_for_it() -> None:
    seconds = {f"{FILE}::test_{n}": 2.0 for n in range(3)}
    known = measured(seconds, {f"{FILE}::started": (30.0, [f"{FILE}::test_0", f"{FILE}::test_1"])})
    assert known.expected([f"{FILE}::test_0", f"{FILE}::test_1"]) == {FILE: 34.0}
    assert known.expected([f"{FILE}::test_2"]) == {FILE: 2.0}
    assert known.expected(["tests/other.py::test"]) == {"tests/other.py": 0.0}


def test_costs_are_kept_of_files_that_did_not_run(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs.write(path, {f"tests/a.py::test[{n}]": 3.0 for n in range(4)})
    costs.write(path, {f"tests/b.py::test[{n}]": 5.0 for n in range(4)}, {"tests/b.py::f": (9.0, ["t"])})
    costs.write(path, {"tests/c.py::test": 5.0})
    assert costs.read(path).shared == {"tests/b.py::f": Shared(9.0, frozenset({short("t")}))}
    assert costs.read(path).groups.keys() == {"tests/a.py::test", "tests/b.py::test", "tests/c.py::"}
    costs.write(path, {f"tests/a.py::test[{n}]": 0.0 for n in range(4)})
    assert costs.read(path).groups.keys() == {"tests/b.py::test", "tests/c.py::"}


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


def test_what_a_shared_fixture_takes_is_no_cost_of_the_first_test() -> None:
    clock = Clock()
    with clock.apart("file::fixture", ["file::first", "file::second"]):
        end = time.process_time() + 0.4
        while time.process_time() < end:
            pass
    clock.stop("file::first")
    assert clock.seconds["file::first"] < 0.2
    spent, users = clock.shared["file::fixture"]
    assert spent > 0.3
    assert users == ["file::first", "file::second"]


def test_the_costs_that_are_kept_are_of_tests_that_are_there() -> None:
    root = Path(__file__).parents[1]
    for name in costs.read(root / "tests" / "data" / "costs.json").groups:
        file, _, test = name.partition("::")
        text = (root / file).read_text()
        assert not test or f"def {test.rpartition('::')[2]}(" in text, name


def test_families_that_sample_themselves_are_there_and_draw_as_many_as_is_counted() -> None:
    root = Path(__file__).parents[1]
    for name, share in costs.SAMPLES_ITSELF.items():
        file, _, test = name.partition("::")
        assert f"def {test}(" in (root / file).read_text()
        assert share == SHARE


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
