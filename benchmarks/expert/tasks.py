"""Which tasks there are, and which of them are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.source import Task

Key = tuple[int, int]
"""Level and number of a task."""


def read_tasks(paths: Iterable[Path]) -> list[Task]:
    """Every line of the files: ``{level, problem_id, name, code}``."""
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    tasks = [Task.from_json_line(line) for line in lines]
    if not tasks:
        raise UsageError("no task in these files", "a line is {level, problem_id, name, code}")
    if any(task.level is None or task.problem_id is None for task in tasks):
        raise UsageError("a task without a level or a number", "a line is {level, problem_id, name, code}")
    if len({key_of(task) for task in tasks}) != len(tasks):
        raise UsageError("two tasks have the same level and number", "name each file once")
    return tasks


def key_of(task: Task) -> Key:
    assert task.level is not None
    assert task.problem_id is not None
    return task.level, task.problem_id


def told(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def parse_ids(text: str) -> tuple[Key, ...]:
    """``1/3,2/7``."""
    try:
        pairs = [part.split("/") for part in text.split(",") if part.strip()]
        return tuple((int(level), int(number)) for level, number in pairs)
    except ValueError:
        raise UsageError(f"not a list of tasks: {text!r}", "as in --ids 1/3,2/7") from None


def chosen(tasks: Sequence[Task], ids: Sequence[Key]) -> list[Task]:
    """Those named, in that order; or all, whole networks first, so that none of them is the last to end."""
    missing = [told(key) for key in ids if key not in {key_of(task) for task in tasks}]
    if missing:
        raise UsageError(f"no task {', '.join(missing)} in these files", "a task is named LEVEL/NUMBER")
    if ids:
        by_key = {key_of(task): task for task in tasks}
        return [by_key[key] for key in dict.fromkeys(ids)]
    return sorted(tasks, key=lambda task: (-key_of(task)[0], key_of(task)[1]))
