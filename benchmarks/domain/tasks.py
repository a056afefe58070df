"""Which tasks there are: lines of JSONL files, folders of task files, and bundled suites by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from egg.bench.listing import key_of
from egg.bench.suites import load
from egg.core.errors import UsageError
from egg.core.source import Task


def read_tasks(suites: Iterable[str], ids: Sequence[str] = ()) -> dict[str, Task]:
    """Every task of the suites under its key, ``level/problem`` or its name; with ``ids`` only those."""
    found: dict[str, Task] = {}
    for suite in suites:
        for task in load(suite).tasks:
            if found.setdefault(key_of(task), task) is not task:
                raise UsageError(f"two tasks are called {key_of(task)!r}", "name each suite once")
    if missing := [name for name in ids if name not in found]:
        raise UsageError(f"no task {', '.join(missing)}", "a task is named LEVEL/NUMBER, or by its name")
    return {name: found[name] for name in ids} if ids else found
