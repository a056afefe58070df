"""A suite: tasks in a fixed order, each under a key that no other has.

``load`` takes what a user has: the name of a bundled suite, a KernelBench checkout, JSONL files, a folder of
task files, one task file. It first lists what is there, then chooses by level and id, and only then reads the
tasks that were chosen, so that a broken file matters only where it was chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from egg.bench.choosing import chosen
from egg.bench.listing import Listed, key_of, listed
from egg.core.errors import TaskError, UsageError
from egg.core.source import Task, content_hash

BUNDLED: Mapping[str, str] = MappingProxyType({"llm-ops": "llm_ops", "real": "real"})
"""Suites that come with the package, and their folders beside this file."""

Choice = str | Iterable[str | int]
"""Numbers, ranges and names: ``[1, 2]``, ``["3-9", "rms_norm*"]``, or all in one string, ``"1-3,7"``."""


@dataclass(frozen=True)
class Suite:
    """Tasks to run, in order; never empty, and no two under one key."""

    name: str
    tasks: tuple[Task, ...]
    source: str
    """Where they were read from, for people: a path, or ``bundled``."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UsageError(f"suite {self.name!r} has no tasks", "a suite is at least one task")
        twice = [key for key, count in Counter(map(key_of, self.tasks)).items() if count > 1]
        if twice:
            raise UsageError(
                f"suite {self.name!r} has more than one task {twice[0]!r}",
                "give each task its own level and problem_id, or its own name",
            )

    @cached_property
    def by_key(self) -> Mapping[str, Task]:
        """Every task under its key, ``level/problem`` or its name, in the suite's order."""
        return MappingProxyType({key_of(task): task for task in self.tasks})

    @cached_property
    def hash(self) -> str:
        """Of keys and sources: two suites with the same hash ask the same questions in the same order."""
        return content_hash("\n".join(f"{key} {task.hash}" for key, task in self.by_key.items()))

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels that occur, in ascending order."""
        return tuple(sorted({task.level for task in self.tasks if task.level is not None}))


def load(suite: str | Path, *, levels: Choice | None = None, ids: Choice | None = None) -> Suite:
    """The suite that ``suite`` names, or what ``levels`` and ``ids`` choose of it; order is the suite's own.
    A path is never a bundled suite, whatever it is called.

    An id is a problem's number (``7``, in every chosen level), a range of them (``3-9``), either with its
    level (``2/7``, ``2/3-9``), a task's name, or a pattern for names (``attention_*``). Every level and every
    id must mean something: a name that was misspelt is a :class:`~egg.core.errors.UsageError`.
    """
    bundled = BUNDLED.get(suite) if isinstance(suite, str) else None
    path = Path(__file__).with_name(bundled) if bundled else Path(suite).expanduser()
    if not bundled and not path.exists():
        raise UsageError(
            f"no such suite: {suite}",
            f"bundled: {', '.join(BUNDLED)}; otherwise a KernelBench checkout, a .jsonl file, "
            "a folder of task files or one task file",
        )
    name = str(suite) if bundled else path.resolve().stem if path.is_file() else path.resolve().name
    found = listed(path)
    if not found:
        raise UsageError(
            f"{path} holds no tasks",
            "expected task files (*.py), JSONL files (*.jsonl) or KernelBench/level1/1_name.py",
        )
    _refuse_twins(found)
    wanted = chosen(found, name, levels=levels, ids=ids)
    return Suite(name, tuple(map(_read, wanted)), "bundled" if bundled else str(path))


def thinned(suite: Suite, limit: int) -> Suite:
    """So many of a suite's tasks, spread evenly over it: suites put like beside like, and a sample should not
    be all of one kind. The same ones every time."""
    if limit < 1:
        raise UsageError(f"{limit} tasks are no bench", "give a number larger than zero, or leave it out")
    count = len(suite.tasks)
    if limit >= count:
        return suite
    return Suite(suite.name, tuple(suite.tasks[i * count // limit] for i in range(limit)), suite.source)


def _refuse_twins(found: list[Listed]) -> None:
    first: dict[str, Listed] = {}
    for item in found:
        twin = first.setdefault(item.key, item)
        if twin is not item:
            raise UsageError(
                f"two tasks are called {item.key!r}: {twin.where} and {item.where}",
                "remove one of them, or give it another number or name",
            )


def _read(item: Listed) -> Task:
    """The task itself; an error names its place."""
    try:
        return item.read()
    except TaskError as error:
        raise TaskError(
            f"{item.where}: {error.message}", f"{error.hint}; or choose other tasks with ids"
        ) from None
