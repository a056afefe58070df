"""Where lessons are kept: one sqlite file on this machine, which nothing but its user carries anywhere.

Many runs may write it at once. Each write is one transaction that takes the lock first, and a
lesson that is there already is left as it is, so writers need not know of each other and writing
the same log twice adds nothing. A file that is not ours, is damaged, or was made by a newer version
is an error, and is never written over.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from egg.core.errors import MachineError
from egg.core.stage import Stage
from egg.memory.lessons import Lesson, LessonsError

MAGIC = b"SQLite format 3\x00"
APPLICATION = 0x45474C31
"""Marks the file as ours: ``EGL1``."""
VERSION = 1
"""Of the tables below; a file of an older one is brought up to it, a newer one is refused."""
PATIENCE_SECONDS = 10.0
"""How long a writer waits for another."""
ANOTHER = "name another file with --lessons, or use --no-lessons"

_TABLES = """
CREATE TABLE lessons (
    run TEXT NOT NULL, step INTEGER NOT NULL, at TEXT NOT NULL, signature TEXT NOT NULL,
    gpu TEXT NOT NULL, stage TEXT NOT NULL, category TEXT, skill TEXT, verdict TEXT NOT NULL,
    version TEXT NOT NULL, lesson TEXT NOT NULL,
    PRIMARY KEY (run, step)
) WITHOUT ROWID;
CREATE INDEX lessons_by_stage ON lessons (stage, skill);
"""


class LessonStore:
    """A store that is open. ``create=False`` opens what is there, and makes nothing."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        if os.path.exists(path) and not os.path.isfile(path):
            raise LessonsError(f"{path} is no file", ANOTHER)
        if not create and not os.path.isfile(path):
            raise LessonsError(f"no lessons in {path}", f"runs write them; or {ANOTHER}")
        if create:
            _make_room(path)
        with self._errors():
            self._base = sqlite3.connect(
                _address(path, create), PATIENCE_SECONDS, isolation_level=None, uri=True
            )
        try:
            with self._errors():
                self._prepare(create)
        except BaseException:
            self._base.close()
            raise

    def add(self, lessons: Iterable[Lesson]) -> int:
        """Keep what is not here yet; how many that were. What is here already stays as it is."""
        rows = [_row(lesson) for lesson in lessons]
        with self._writing():
            before = self._base.total_changes
            self._base.executemany(f"INSERT OR IGNORE INTO lessons VALUES ({', '.join('?' * 11)})", rows)
            return self._base.total_changes - before

    def lessons(
        self, *, stage: Stage | None = None, skill: str | None = None, run: str | None = None
    ) -> tuple[Lesson, ...]:
        """Those of a stage, a skill, a run, or all; oldest first, in an order that depends on them alone."""
        wanted = {"stage": stage.value if stage is not None else None, "skill": skill, "run": run}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in given) or "1"
        with self._errors():
            rows = self._base.execute(
                f"SELECT run, step, lesson FROM lessons WHERE {where} ORDER BY at, run, step",
                tuple(given.values()),
            ).fetchall()
        return tuple(self._lesson(*row) for row in rows)

    def __len__(self) -> int:
        with self._errors():
            return self._base.execute("SELECT count(*) FROM lessons").fetchone()[0]

    def prune(
        self,
        *,
        before: str | None = None,
        keep: int | None = None,
        versions: tuple[str, ...] = (),
        dry: bool = False,
    ) -> int:
        """Forget lessons; how many. Any of the conditions is enough.

        ``before``: older than that moment. ``keep``: for each signature, stage and skill all but so
        many of the newest. ``versions``: made by one of these versions of this package.
        """
        conditions: list[str] = []
        values: list[object] = []
        if before is not None:
            conditions.append("at < ?")
            values.append(before)
        if versions:
            conditions.append(f"version IN ({', '.join('?' * len(versions))})")
            values.extend(versions)
        if keep is not None:
            conditions.append(
                "(run, step) IN (SELECT run, step FROM (SELECT run, step, row_number() OVER ("
                "PARTITION BY signature, stage, skill ORDER BY at DESC, run DESC, step DESC"
                ") AS place FROM lessons) WHERE place > ?)"
            )
            values.append(keep)
        if not conditions:
            return 0
        where = " OR ".join(conditions)
        with self._writing():
            gone = self._base.execute(f"SELECT count(*) FROM lessons WHERE {where}", values).fetchone()[0]
            if not dry:
                self._base.execute(f"DELETE FROM lessons WHERE {where}", values)
        return gone

    def close(self) -> None:
        self._base.close()

    def __enter__(self) -> LessonStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _prepare(self, create: bool) -> None:
        """See whose file it is, and make the tables in a new one.

        A crash of the machine may cost the newest lessons, never the file: the log has them still.
        """
        if self._pragma("application_id") != APPLICATION or self._pragma("user_version") != VERSION:
            with self._writing():
                self._claim()
        if create:
            _set_wal(self._base)
        self._base.execute("PRAGMA synchronous = NORMAL")

    def _claim(self) -> None:
        """Under the lock: another process may have made the tables while this one waited."""
        owner, version = self._pragma("application_id"), self._pragma("user_version")
        if owner == APPLICATION and version == VERSION:
            return
        if owner == APPLICATION and version > VERSION:
            raise LessonsError(
                f"the lessons in {self.path} were written by a newer version of egg",
                f"use that version, or {ANOTHER}",
            )
        if owner or version or self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise LessonsError(f"{self.path} is a database of another program", ANOTHER)
        for statement in _TABLES.split(";"):
            self._base.execute(statement)
        self._base.execute(f"PRAGMA application_id = {APPLICATION}")
        self._base.execute(f"PRAGMA user_version = {VERSION}")

    def _pragma(self, name: str) -> int:
        return self._base.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction that holds the lock from its beginning; nothing of it stays if it fails."""
        with self._errors():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of sqlite as errors of the file, or of the machine."""
        try:
            yield
        except sqlite3.OperationalError as reason:
            raise MachineError(
                f"cannot use the lessons in {self.path}: {reason}",
                f"check the disk and the file's permissions, or {ANOTHER}",
            ) from reason
        except sqlite3.DatabaseError as reason:
            raise _damaged(self.path, str(reason)) from reason

    def _lesson(self, run: str, step: int, text: str) -> Lesson:
        try:
            lesson = Lesson.from_json(json.loads(text))
        except (ValueError, TypeError, RecursionError) as reason:
            raise _damaged(self.path, f"step {step} of run {run}: {reason}") from reason
        if lesson.identity != (run, step):
            raise _damaged(self.path, f"step {step} of run {run} says it is another")
        return lesson


def is_store(path: Path) -> bool:
    """Whether a file is a database, and not lines of text."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _row(lesson: Lesson) -> tuple[object, ...]:
    return (
        lesson.run,
        lesson.step,
        lesson.when,
        lesson.signature.key,
        lesson.gpu,
        lesson.stage.value,
        lesson.category.value if lesson.category is not None else None,
        lesson.skill,
        lesson.verdict.value,
        lesson.version,
        json.dumps(lesson.to_json(), allow_nan=False),
    )


def _set_wal(base: sqlite3.Connection) -> None:
    """Readers and a writer side by side. Changing the mode does not wait by itself as other locks do;
    a file system without shared memory keeps the plain journal, which is as safe."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as reason:
            if "locked" not in str(reason) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _address(path: Path, create: bool) -> str:
    """A file that may only be read is read as it lies: beside it there is no room for a journal."""
    mode = "rwc" if create else "rw"
    writable = os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)
    if os.path.isfile(path) and not writable and not os.path.exists(f"{path}-wal"):
        mode = "ro&immutable=1"
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"


def _make_room(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise MachineError(f"cannot make {path.parent}: {reason.strerror}", ANOTHER) from None


def _damaged(path: Path, why: str) -> LessonsError:
    return LessonsError(
        f"the lessons in {path} are damaged: {why}",
        "move the file away and import an export of it; runs begin a new one",
    )
