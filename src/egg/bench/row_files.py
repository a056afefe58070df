"""Files of rows: read, and added to while a bench runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from egg.bench.kept import is_kept, kept_row
from egg.bench.listing import key_of
from egg.bench.rows import SCHEMA, Row, latest
from egg.core.errors import EggError, UsageError
from egg.core.lines import LineFile, whole_lines
from egg.core.policy import Policy
from egg.core.source import Task


def read_rows(path: Path) -> list[Row]:
    """The last row of every task in the file; a torn last line is passed over."""
    return list(latest(_row(line, number, path) for number, line in whole_lines(path)).values())


def _row(line: str, number: int, path: Path) -> Row:
    try:
        data = json.loads(line)
        return kept_row(data) if is_kept(data) else Row.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, EggError) as reason:
        raise UsageError(
            f"{path} line {number} is not a row: {reason}", "remove that line, or name a file of rows"
        ) from None


class RowsFile:
    """A file of rows that is being added to, and knows what is still to be done."""

    def __init__(self, path: Path) -> None:
        read_rows(path)  # before anything is cut off: a wrong file stays as it is
        self._lines = LineFile(path, f'{{"schema":"{SCHEMA}"')
        try:
            self._rows = latest(read_rows(path))
        except BaseException:
            self._lines.close()
            raise

    @property
    def rows(self) -> list[Row]:
        """The last of every task."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """When this returns, the row is on the disk."""
        self._lines.add(row.to_line())
        self._rows[row.key] = row

    def pending(self, tasks: Iterable[Task], policy: Policy, *, retry: bool = False) -> list[Task]:
        """Tasks without a row of the same source and policy; with ``retry``, what was cut short."""
        return [task for task in tasks if not self._settled(task, policy, retry)]

    def _settled(self, task: Task, policy: Policy, retry: bool) -> bool:
        row = self._rows.get(key_of(task))
        if row is None or row.task_sha256 != task.sha256 or (retry and row.cut_short):
            return False
        terms = (row.policy.precision, row.policy.library_calls)
        return terms == (policy.precision, policy.library_calls)

    def close(self) -> None:
        self._lines.close()

    def __enter__(self) -> RowsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
