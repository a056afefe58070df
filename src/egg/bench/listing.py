"""What a path holds, without reading the tasks themselves: a name, a place, and the way to read each.

Four forms are known: a KernelBench checkout (``KernelBench/level1/1_name.py``, or any folder of level
folders, or one of them), JSONL files with a task a line, a folder of task files, and one task file. Which of
them a path is follows from what lies there; nothing is guessed from its name, except that ``level`` and a
number is what KernelBench calls its folders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from egg.core.errors import UsageError
from egg.core.lines import text_lines
from egg.core.source import Task

_LEVEL = re.compile(r"level_?(\d{1,9})")
_PROBLEM = re.compile(r"(\d{1,9})_.*")
_LINE_FORM = "one task a line: {level, problem_id, name, code}"
LONGEST_NAME = 200
"""Bytes of a name: runs make folders of names, and file systems end at 255."""


@dataclass(frozen=True)
class Listed:
    """A task that is there to be read."""

    name: str
    where: str
    """The file, with the line where one file holds many."""
    read: Callable[[], Task]
    level: int | None = None
    problem: int | None = None

    def __post_init__(self) -> None:
        fits = self.name.isprintable() and not re.search(r"[/\\]", self.name) and self.name.strip(". ")
        if not fits or len(self.name.encode()) > LONGEST_NAME:
            raise UsageError(
                f"{self.where}: {self.name!r} cannot be a task's name",
                f"a name is printable, without slashes, and at most {LONGEST_NAME} bytes long",
            )

    @property
    def key(self) -> str:
        return _key(self.name, self.level, self.problem)


def key_of(task: Task) -> str:
    """What a task goes by in its suite: ``level/problem`` where it has both, else its name."""
    return _key(task.name, task.level, task.problem_id)


def _key(name: str, level: int | None, problem: int | None) -> str:
    return name if level is None or problem is None else f"{level}/{problem}"


def listed(path: Path) -> list[Listed]:
    """The tasks at ``path``, in the order in which they are to run; empty where there are none."""
    try:
        if not path.is_dir():
            return _in_file(path)
        levels = _level_folders(path)
        if levels:
            return [task for number, folder in levels for task in _in_level(number, folder)]
        return _in_folder(path)
    except OSError as reason:
        raise UsageError(
            f"cannot read {path}: {reason.strerror}", "check the path and its permissions"
        ) from None


def _in_file(path: Path) -> list[Listed]:
    match path.suffix.lower():
        case ".jsonl":
            return list(_lines(path))
        case ".py":
            return [_task_file(path)]
    raise UsageError(
        f"{path} is no suite", "a file is a task (.py) or holds tasks (.jsonl); other suites are folders"
    )


def _in_folder(path: Path) -> list[Listed]:
    """Task files or JSONL files; where both lie together it is not clear which of them is the suite."""
    programs, exports = _visible(path, ".py"), _visible(path, ".jsonl")
    if programs and exports:
        raise UsageError(
            f"{path} holds task files ({programs[0].name}, ...) and JSONL files ({exports[0].name}, ...)",
            "name one of the JSONL files, or keep the two in folders of their own",
        )
    return [*map(_task_file, programs), *(task for file in exports for task in _lines(file))]


def _visible(path: Path, suffix: str) -> list[Path]:
    """Files with that ending, numbers in their names in numerical order; ``_private`` and hidden ones are not
    meant. A dangling link is: its task is missing, not absent."""
    files = [p for p in path.iterdir() if p.suffix.lower() == suffix and not p.is_dir()]
    return sorted((p for p in files if not p.name.startswith(("_", "."))), key=_natural)


def _natural(path: Path) -> tuple[Any, ...]:
    """Text and numbers in turn, so that 2_b comes before 10_a; the name itself decides between 2 and 02."""
    parts = re.split(r"(\d+)", path.name)
    return (*((int(p), "") if i % 2 else (0, p) for i, p in enumerate(parts)), (0, path.name))


def _task_file(path: Path) -> Listed:
    return Listed(path.stem, str(path), lambda: Task.from_file(path))


# -- KernelBench -----------------------------------------------------------------------------------


def _level_folders(path: Path) -> list[tuple[int, Path]]:
    """Level folders by number: in ``path/KernelBench``, in ``path``, or ``path`` itself."""
    for parent in (path / "KernelBench", path):
        if parent.is_dir():
            found = [(_level(p), p) for p in parent.iterdir() if p.is_dir()]
            levels = sorted((number, p) for number, p in found if number is not None)
            if levels:
                return levels
    number = _level(path.resolve())
    numbered = any(_PROBLEM.fullmatch(p.stem) for p in _visible(path, ".py"))
    return [(number, path)] if number is not None and numbered else []


def _level(path: Path) -> int | None:
    match = _LEVEL.fullmatch(path.name)
    return int(match[1]) if match else None


def _in_level(level: int, folder: Path) -> Iterator[Listed]:
    found: list[Listed] = []
    for path in _visible(folder, ".py"):
        match = _PROBLEM.fullmatch(path.stem)
        if match is None:
            raise UsageError(
                f"{path} has no problem number",
                "files of a level folder are called 1_name.py, 2_name.py, ...; move others elsewhere",
            )
        problem = int(match[1])
        found.append(Listed(path.stem, str(path), partial(_problem, path, level, problem), level, problem))
    yield from sorted(found, key=lambda task: task.problem or 0)


def _problem(path: Path, level: int, problem: int) -> Task:
    read = Task.from_file(path)
    return Task(read.name, read.source, level, problem)


# -- JSONL -----------------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[Listed]:
    """A task per line that is not blank."""
    for number, line in text_lines(path, "JSONL files are UTF-8"):
        yield _line(line, f"{path}, line {number}")


def _line(line: str, where: str) -> Listed:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as reason:
        raise UsageError(f"{where} is not JSON: {reason}", _LINE_FORM) from None
    if not isinstance(row, dict):
        raise UsageError(f"{where} is {type(row).__name__}, not an object", _LINE_FORM)
    for field in ("name", "code"):
        if not isinstance(row.get(field), str):
            raise UsageError(f"{where}: {field!r} is missing or no text", _LINE_FORM)
    for field in ("level", "problem_id"):
        value = row.get(field)
        if value is not None and (type(value) is not int or value < 0):
            raise UsageError(f"{where}: {field!r} is {value!r}, not a whole number", _LINE_FORM)
    return Listed(
        row["name"], where, lambda: Task.from_json_line(line), row.get("level"), row.get("problem_id")
    )
