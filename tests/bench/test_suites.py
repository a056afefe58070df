"""Suites from everything a user may point at, and what is said about what cannot be one."""

from __future__ import annotations

import contextlib
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.bench.choosing import chosen
from egg.bench.listing import Listed
from egg.bench.suites import Suite, load, thinned
from egg.core.errors import TaskError, UsageError
from egg.core.source import Task

CODE = "Model = get_inputs = get_init_inputs = lambda: {}\n"


def code(number: int) -> str:
    return CODE.format(number)


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def line(level: int | None = 1, problem_id: int | None = 1, **changed: object) -> str:
    row = {"level": level, "problem_id": problem_id, "name": f"{problem_id}_task", "code": code(1)} | changed
    return json.dumps({key: value for key, value in row.items() if value is not None})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for level, problems in ((1, (1, 2, 10, 19)), (2, (1, 7)), (3, (4,))):
        for problem in problems:
            name = f"{problem}_Some_layer_.py"
            written(tmp_path / "kb" / "KernelBench" / f"level{level}" / name, code(100 * level + problem))
    written(tmp_path / "kb" / "KernelBench" / "level1" / "__init__.py", "")
    written(tmp_path / "kb" / "src" / "eval.py", "import nothing")
    return tmp_path / "kb"


# -- what a suite is -------------------------------------------------------------------------------


def test_a_suite_is_never_empty_and_has_no_twins():
    with pytest.raises(UsageError, match="no tasks"):
        Suite("s", (), "here")
    with pytest.raises(UsageError, match="more than one task '1/2'"):
        Suite("s", (Task("a", code(1), 1, 2), Task("b", code(2), 1, 2)), "here")
    Suite("s", (Task("a", code(1), 1, None), Task("b", code(1), 1, None)), "here")


def test_the_hash_follows_content_keys_and_order():
    one, two = Task("a", code(1)), Task("b", code(2))
    suite = Suite("s", (one, two), "here")
    assert suite.hash == Suite("other", (one, two), "there").hash
    different = [(two, one), (one,), (one, Task("c", code(2))), (one, Task("b", code(3)))]
    assert suite.hash not in {Suite("s", tasks, "here").hash for tasks in different}


@pytest.mark.parametrize("name", ["llm-ops", "real"])
def test_a_bundled_suite_comes_by_name(name):
    suite = load(name)
    assert (suite.name, suite.source, suite.levels) == (name, "bundled", ())
    assert list(suite.by_key) == [task.name for task in suite.tasks] == sorted(suite.by_key)


def test_a_bundled_name_is_no_folder_of_the_same_name(tmp_path, monkeypatch):
    written(tmp_path / "llm-ops" / "mine.py", code(1))
    monkeypatch.chdir(tmp_path)
    assert len(load("llm-ops").tasks) > 20
    for path in ("./llm-ops", Path("llm-ops")):
        assert list(load(path).by_key) == ["mine"]


# -- KernelBench -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", [".", "KernelBench"])
def test_a_checkout_in_numerical_order(checkout, inside):
    suite = load(checkout / inside)
    assert list(suite.by_key) == ["1/1", "1/2", "1/10", "1/19", "2/1", "2/7", "3/4"]
    assert suite.levels == (1, 2, 3)
    ten = suite.by_key["1/10"]
    assert (ten.name, ten.level, ten.problem_id, ten.source) == ("10_Some_layer_", 1, 10, code(110))


def test_one_level_folder(checkout):
    assert list(load(checkout / "KernelBench" / "level2").by_key) == ["2/1", "2/7"]


@pytest.mark.parametrize(
    ("levels", "ids", "keys"),
    [
        ("1", None, ["1/1", "1/2", "1/10", "1/19"]),
        ([3, 2], None, ["2/1", "2/7", "3/4"]),
        ("2-3", None, ["2/1", "2/7", "3/4"]),
        (None, "1", ["1/1", "2/1"]),
        ([1], [1], ["1/1"]),
        (None, "2-10", ["1/2", "1/10", "2/7", "3/4"]),
        (None, "3/4, 1/2-10", ["1/2", "1/10", "3/4"]),
        (None, ["L2/7", "2/7", "7"], ["2/7"]),
        (None, "19_Some_layer_", ["1/19"]),
        ("1", "1*_Some*", ["1/1", "1/10", "1/19"]),
    ],
)
def test_choosing_by_level_and_id(checkout, levels, ids, keys):
    assert list(load(checkout, levels=levels, ids=ids).by_key) == keys


@pytest.mark.parametrize(
    ("levels", "ids", "message"),
    [
        ("4", None, "no level 4.*\n.*1, 2, 3"),
        ("one", None, "not a level: 'one'"),
        ("1/2", None, "not a level"),
        ("3-1", None, "range 3-1 is empty.*\n.*1-3"),
        ([], None, "no levels given"),
        (" , ", None, "no levels given"),
        (None, [], "no ids given"),
        (None, "3", "no task '3'"),
        (None, "1,20-90", "no task '20-90'"),
        ("2", "1/19", "no task '1/19' among those chosen"),
        (None, "2_Some_layer", "did you mean 2_Some_layer_"),
        (None, "-1", "no task '-1'"),
        (None, "9" * 5000, "no task"),
    ],
)
def test_what_means_nothing_is_refused(checkout, levels, ids, message):
    with pytest.raises(UsageError, match=message):
        load(checkout, levels=levels, ids=ids)


def test_two_files_with_one_number(checkout):
    written(checkout / "KernelBench" / "level1" / "02_Again.py", code(5))
    with pytest.raises(UsageError, match=r"'1/2': .*02_Again\.py and .*2_Some_layer_\.py|'1/2': .*2_.*02_"):
        load(checkout)


def test_a_file_without_a_number(checkout):
    written(checkout / "KernelBench" / "level2" / "helper.py", code(5))
    with pytest.raises(UsageError, match=r"helper\.py has no problem number"):
        load(checkout)


def test_a_broken_task_stands_in_nobodys_way_who_did_not_ask_for_it(checkout):
    written(checkout / "KernelBench" / "level1" / "2_Some_layer_.py", "class (:\n")
    with pytest.raises(TaskError, match=r"2_Some_layer_\.py: .*line 1 is not valid Python(.|\n)*ids"):
        load(checkout)
    assert len(load(checkout, ids="1/1,1/10").tasks) == 2


# -- JSONL -----------------------------------------------------------------------------------------


def test_a_jsonl_file(tmp_path):
    text = "\ufeff" + line(1, 1) + "\r\n\n" + line(2, 3, hash="ignored") + "\n" + line(None, None, name="x")
    suite = load(written(tmp_path / "tasks.jsonl", text))
    assert (suite.name, list(suite.by_key)) == ("tasks", ["1/1", "2/3", "x"])


def test_code_may_hold_any_line_end(tmp_path):
    """A line separator is a line's end to ``str.splitlines`` and none to JSON."""
    strange = code(1) + 'x = "\u2028\x85"\n'
    row = json.dumps({"name": "x", "code": strange}, ensure_ascii=False)
    assert load(written(tmp_path / "t.jsonl", row)).tasks[0].source == strange


def test_a_folder_of_jsonl_files(tmp_path):
    for level in (10, 2):
        written(tmp_path / f"level{level}.jsonl", line(level, 1))
    assert list(load(tmp_path).by_key) == ["2/1", "10/1"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "is list, not an object"),
        ('{"name": "x"}', "'code' is missing"),
        (line(code=3), "'code' is missing or no text"),
        (line(name=""), "cannot be a task's name"),
        (line(name="../x"), "cannot be a task's name"),
        (line(name=".."), "cannot be a task's name"),
        (line(name="a\nb"), "cannot be a task's name"),
        (line(name="\ud800"), "cannot be a task's name"),
        (line(name="ü" * 101), "cannot be a task's name"),
        (line(level="1"), "'level' is '1', not a whole number"),
        (line(level=True), "'level' is True"),
        (line(problem_id=1.5), "'problem_id' is 1.5"),
        (line(problem_id=-1), "'problem_id' is -1"),
        (line(code="x = 1"), "does not define Model"),
        (line(code="class (:"), "not valid Python"),
        (line(code="\ud800"), "not valid Python"),
    ],
)
def test_a_broken_line_is_named(tmp_path, broken, message):
    path = written(tmp_path / "tasks.jsonl", line(7, 7) + "\n\n" + broken + "\n")
    with pytest.raises(UsageError, match=rf"tasks\.jsonl, line 3.*{message}"):
        load(path)


def test_twins_in_jsonl_are_named_with_both_lines(tmp_path):
    path = written(tmp_path / "t.jsonl", "\n".join([line(1, 1), line(1, 2), line(1, 1, name="other")]))
    with pytest.raises(UsageError, match=r"'1/1': .*line 1 and .*line 3"):
        load(path)


# -- folders and files -----------------------------------------------------------------------------


def test_a_folder_of_task_files(tmp_path):
    for name in ("b10", "b9", "a", "_private", ".hidden"):
        written(tmp_path / f"{name}.py", code(1))
    written(tmp_path / "README.md", "text")
    written(tmp_path / "more.py" / "x.py", code(2))
    assert list(load(tmp_path).by_key) == ["a", "b9", "b10"]
    assert load(tmp_path).name == tmp_path.name


def test_one_task_file(tmp_path):
    suite = load(written(tmp_path / "norm.py", code(1)))
    assert (suite.name, list(suite.by_key)) == ("norm", ["norm"])


def test_a_folder_that_is_called_like_a_level(tmp_path):
    written(tmp_path / "level3" / "norm.py", code(1))
    assert list(load(tmp_path / "level3").by_key) == ["norm"]


def test_levels_of_a_suite_that_has_none(tmp_path):
    with pytest.raises(UsageError, match="has no levels"):
        load(written(tmp_path / "norm.py", code(1)), levels="1")


def test_a_kernel_among_the_tasks_is_named(tmp_path):
    written(tmp_path / "norm.py", code(1))
    written(tmp_path / "fused.py", "class ModelNew: ...")
    with pytest.raises(TaskError, match=r"fused\.py: .*does not define Model"):
        load(tmp_path)
    assert len(load(tmp_path, ids="norm").tasks) == 1


def test_task_files_beside_jsonl_files(tmp_path):
    written(tmp_path / "norm.py", code(1))
    written(tmp_path / "t.jsonl", line())
    with pytest.raises(UsageError, match=r"norm\.py, \.\.\.\) and JSONL files \(t\.jsonl"):
        load(tmp_path)


@pytest.mark.parametrize("where", ["nowhere", "llm_ops", "llm-op", "", "\0"])
def test_no_such_suite(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"(no such suite|holds no tasks)"):
        load(where)


@pytest.mark.parametrize("name", ["tasks.txt", "tasks.json", "tasks"])
def test_a_file_of_another_kind(tmp_path, name):
    with pytest.raises(UsageError, match="is no suite"):
        load(written(tmp_path / name, line()))


@pytest.mark.parametrize("folders", ["", "level1", "KernelBench/level1"])
def test_nothing_there(tmp_path, folders):
    (tmp_path / folders).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UsageError, match="holds no tasks"):
        load(tmp_path)
    with pytest.raises(UsageError, match="holds no tasks"):
        load(written(tmp_path / "empty" / "t.jsonl", "\n \n"))


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b'{"name": "\xff"}')
    with pytest.raises(UsageError, match=r"cannot read .*t\.jsonl"):
        load(tmp_path)


def test_a_dangling_link_is_a_missing_task(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    with pytest.raises(TaskError, match=r"gone\.py: no such file"):
        load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(tmp_path):
    (tmp_path / "shut").mkdir(mode=0)
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path / "shut")


# -- choosing, at random ---------------------------------------------------------------------------

NUMBERS = st.tuples(st.integers(1, 4), st.integers(1, 12))


def entries(pairs: list[tuple[int, int]]) -> list[Listed]:
    return [Listed(f"{p}_x", "here", lambda: Task("x", code(1)), level, p) for level, p in pairs]


@given(st.lists(NUMBERS, min_size=1, unique=True), st.integers(1, 12), st.integers(0, 6), st.integers(1, 4))
def test_a_range_means_the_numbers_in_it_and_keeps_the_order(pairs, first, more, level):
    found = entries(pairs)
    expected = [f"{lv}/{p}" for lv, p in pairs if lv == level and first <= p <= first + more]
    word = f"{level}/{first}-{first + more}"
    if expected:
        assert [task.key for task in chosen(found, "s", ids=[word])] == expected
    else:
        with pytest.raises(UsageError):
            chosen(found, "s", ids=[word])


@given(st.lists(NUMBERS, min_size=1, unique=True), st.text(max_size=12))
def test_any_id_means_some_tasks_or_is_refused(pairs, word):
    with contextlib.suppress(UsageError):
        assert chosen(entries(pairs), "s", ids=[word])


# -- some of them ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 60))
def test_a_thinned_suite_is_spread_evenly_and_keeps_its_order(count: int, limit: int):
    suite = Suite("many", tuple(Task(f"t{n}", code(n)) for n in range(count)), "here")
    some = [int(task.name[1:]) for task in thinned(suite, limit).tasks]
    assert len(some) == min(count, limit)
    assert some == sorted(set(some))
    gaps = {later - earlier for earlier, later in pairwise(some)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert thinned(suite, limit).hash == thinned(suite, limit).hash


def test_nothing_is_no_suite():
    suite = Suite("one", (Task("t", code(1)),), "here")
    for limit in (0, -3):
        with pytest.raises(UsageError, match="no bench"):
            thinned(suite, limit)
