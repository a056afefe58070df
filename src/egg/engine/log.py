"""A run's log: ``events.jsonl``, one event per line, only ever appended to.

The log is the only truth of a run; whatever else is in the folder can be made again from it.
It survives being killed at any byte by one rule: *a line counts once it is whole*. An event
is written with a single ``write`` of its line and ``fsync``; what a killed writer leaves is
therefore whole lines and at most one torn one at the end. Readers pass over that, the next
writer cuts it off. Damage anywhere else was not done by us, and is an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.events import READABLE, SCHEMA, SIDE_BY_SIDE, Evaluated, Event, Proposed, RunStarted
from egg.core.source import content_hash, content_sha256, earlier_hash
from egg.engine.lock import run_lock
from egg.engine.redaction import Redactor

LOG = "events.jsonl"


class LogError(UsageError):
    """A log that cannot be read, or an event that cannot be added to it."""


@dataclass(frozen=True)
class Entry:
    """One line of a log. Numbers begin at 1, so that an entry's number is its line's."""

    number: int
    at: str
    """UTC, to the millisecond: ``2026-03-01T09:30:00.125Z``."""
    event: Event


def read_log(folder: Path) -> tuple[Entry, ...]:
    """Every whole entry of the run in ``folder``."""
    entries, _ = _read(folder)
    if not entries:
        raise no_run(folder)
    return entries


class LogWriter:
    """The one writer of a run's log. Opening it takes the lock and cuts off a torn last line.

    Opening an empty or missing folder begins a log, whose first event must be the run's start;
    with ``create=False`` there must be a run, and nothing is made where there is none.
    ``history`` is what the log held when it was opened.
    """

    def __init__(
        self,
        folder: Path,
        redactor: Redactor | None = None,
        *,
        create: bool = True,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.folder = folder
        self._redactor = redactor or Redactor()
        self._clock = clock or (lambda: datetime.now(UTC))
        self._turn = threading.Lock()
        self._handle: int | None = None
        if create:
            _make_folder(folder)
        elif not (folder / LOG).is_file():
            raise no_run(folder)
        with ExitStack() as stack:
            stack.enter_context(run_lock(folder))
            self.history, end = _read(folder)
            if not (create or self.history):
                raise no_run(folder)
            self._handle = _open_at(folder / LOG, end)
            stack.callback(self._close_file)
            self._held = stack.pop_all()
        self._number, self._end = len(self.history), end

    def append(self, event: Event) -> Entry:
        """Make an event part of the run. When this returns, it is on the disk.

        The entry returned is the one a reader will see, secrets taken out: a caller that goes on from
        it does the same now as after a resume.
        """
        with self._turn:
            if self._handle is None:
                raise ValueError("the log is closed")
            if isinstance(event, RunStarted) != (self._number == 0):
                raise ValueError(f"event {self._number + 1} cannot be {event.kind}")
            line, entry = self._encode(event)
            try:
                self._write(self._handle, line)
            finally:
                self._settle(self._handle, len(line))
            return entry

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _encode(self, event: Event) -> tuple[bytes, Entry]:
        """The line, from the event as it will be read: so writing what was read gives the same bytes."""
        number, at = self._number + 1, _timestamp(self._clock())
        plain = to_json(event)
        clean = self._redactor.clean(plain)
        try:
            seen = from_json(type(event), clean)
            stored = to_json(seen)
        except _UNFIT as reason:
            stored, seen, fault = None, event, reason
        else:
            fault = None
        if stored != clean and clean == plain:
            raise ValueError(f"{event.kind} cannot be read back") from fault
        if stored != clean:
            raise LogError(
                f"a secret of this run is a word that its log is made of: {event.kind} cannot be written",
                "the value of the key variable is no key: set a real one, or unset it",
            )
        line = json.dumps({"n": number, "at": at, "event": stored}, separators=(",", ":"), allow_nan=False)
        return line.encode("ascii") + b"\n", Entry(number, at, seen)

    def _write(self, handle: int, line: bytes) -> None:
        """The whole line or nothing: what a full disk took is given back."""
        try:
            written = os.write(handle, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes fitted")
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, self._end)
            raise MachineError(
                f"cannot write {self.folder / LOG}: {error.strerror or error}",
                "make room on the disk; the run resumes from its last event",
            ) from error

    def _settle(self, handle: int, length: int) -> None:
        """Count what the file holds, however the write ended: Ctrl-C may come between it and here.

        A torn line that cannot be taken back closes the log, so that nothing is written behind it.
        """
        grown = os.fstat(handle).st_size - self._end
        if grown == length:
            self._number, self._end = self._number + 1, self._end + length
        elif grown:
            try:
                os.ftruncate(handle, self._end)
            except OSError:
                self._close_file()

    def _close_file(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_HEAT = re.compile(r"\.heat-(?=[0-9a-f]+$)")
"""What version 1 called a job that times files side by side."""
_UNFIT = (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration, EggError)
"""What the codec and the nouns raise for a value that is not of its type."""

_KINDS: dict[str, Any] = {member.kind: member for member in get_args(Event)}


def decode_line(line: bytes, number: int, folder: Path) -> Entry:
    """The entry in line ``number`` of a log."""
    return _entry(_parse(line, number, folder), number, folder)


def no_run(folder: Path) -> LogError:
    return LogError(f"no run in {folder}", "a run is a folder with events.jsonl; check the path")


def _read(folder: Path) -> tuple[tuple[Entry, ...], int]:
    """The whole entries, and the byte behind the last of them."""
    try:
        data = (folder / LOG).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return (), 0
    except OSError as error:
        raise LogError(f"cannot read {folder / LOG}: {error.strerror}", "check its permissions") from None
    end = data.rfind(b"\n") + 1
    lines = data[:end].split(b"\n")[:-1]
    if lines and not _is_json(lines[-1]):
        end -= len(lines.pop()) + 1
    parsed = [_parse(line, number, folder) for number, line in enumerate(lines, 1)]
    if parsed:
        _check_start(parsed[0], folder)
    entries = tuple(_entry(row, number, folder) for number, row in enumerate(_renamed(parsed), 1))
    _check_sources(entries, folder)
    return entries, end


def _renamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an earlier version, in which files have the names that this version would give them."""
    names: dict[str, str] = {}
    for row in rows:
        event = row["event"]
        source = event.get("source") if event.get("kind") == Proposed.kind else None
        if isinstance(source, str) and event.get("candidate") == (earlier := earlier_hash(source)):
            names[str(earlier)] = content_hash(source)
    if not names:
        return rows
    text = json.dumps(rows)
    for old, new in names.items():
        text = text.replace(old, new)
    return json.loads(text)


def _check_sources(entries: tuple[Entry, ...], folder: Path) -> None:
    """Every file in the log must be the one that its name says: a verdict on it is on that text alone.

    A name is 16 digits of a hash, so two texts may have been made for one. The verdicts name whole hashes,
    except those of earlier versions.
    """
    if not entries or not isinstance(started := entries[0].event, RunStarted):
        return
    tasks = {started.task.hash, earlier_hash(started.task.source)}
    wholes: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case Proposed(candidate=name, source=source):
                whole = content_sha256(source)
                if content_hash(source) != name or wholes.setdefault(name, whole) != whole:
                    raise _altered(folder, entry.number, f"kernel {name}")
            case Evaluated(evaluation=evaluation):
                if evaluation.task_hash not in tasks or evaluation.task_sha256 not in (
                    "",
                    started.task.sha256,
                ):
                    raise _altered(folder, 1, f"task {evaluation.task_hash}")
                whole = wholes.get(evaluation.candidate_hash, evaluation.candidate_sha256)
                if evaluation.candidate_sha256 not in ("", whole):
                    raise _altered(folder, entry.number, f"kernel {evaluation.candidate_hash}")
            case _:
                pass


def _altered(folder: Path, number: int, what: str) -> LogError:
    return LogError(
        f"line {number} of {folder / LOG} was altered: its text is not the {what} that was judged",
        "restore the file from a copy; what the log says of that file holds for another text",
    )


def _check_start(row: dict[str, Any], folder: Path) -> None:
    """What the rest is must be known before any of it is read."""
    event = row["event"]
    if event.get("kind") != RunStarted.kind:
        raise _damaged(folder, 1, f"it begins with {event.get('kind')!r} instead of {RunStarted.kind!r}")
    found = event.get("schema")
    if found not in READABLE:
        newer = _version(found) > _version(SCHEMA)
        raise LogError(
            f"the log in {folder} was made by {'a newer' if newer else 'another'} version of egg: "
            f"its schema is {found!r}, this version reads {SCHEMA!r}",
            f"use egg {event.get('version', '')}".strip() + (" or later" if newer else ""),
        )


def _version(schema: object) -> int:
    match = re.fullmatch(r"egg\.run/(\d{1,9})", schema) if isinstance(schema, str) else None
    return int(match[1]) if match else 0


def _parse(line: bytes, number: int, folder: Path) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _damaged(folder, number, "it is not whole JSON") from None
    if not (isinstance(row, dict) and isinstance(row.get("event"), dict) and isinstance(row.get("at"), str)):
        raise _damaged(folder, number, "it is not an entry with 'n', 'at' and 'event'")
    if row.get("n") != number:
        raise _damaged(folder, number, f"its number is {row.get('n')!r}")
    return row


def _entry(row: dict[str, Any], number: int, folder: Path) -> Entry:
    kind = row["event"].get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise LogError(
            f"line {number} of {folder / LOG} holds an event this version does not know: {kind!r}",
            "the run was written by another version of egg: use that one",
        )
    try:
        return Entry(number, row["at"], _present(from_json(_KINDS[kind], row["event"])))
    except _UNFIT as reason:
        raise _damaged(folder, number, f"what it says is no {kind} event ({reason!r})") from reason


def _present(event: Event) -> Event:
    """An event of an older version under today's names: the journal looks evaluations up by their job."""
    if isinstance(event, Evaluated):
        return replace(event, job=_HEAT.sub(f".{SIDE_BY_SIDE}", event.job))
    return event


def _damaged(folder: Path, number: int, what: str) -> LogError:
    return LogError(
        f"line {number} of {folder / LOG} is damaged: {what}",
        f"restore the file from a copy, or keep its first {number - 1} lines and resume from there"
        if number > 1
        else "restore the file from a copy",
    )


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return True


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", "choose another folder") from None
    _sync_folder(folder.parent)


def _open_at(path: Path, end: int) -> int:
    """Open the log for appending, with whatever follows byte ``end`` cut off."""
    created = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.ftruncate(handle, end)
    os.fsync(handle)
    if created:
        _sync_folder(path.parent)
    return handle


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder last, not only what the files hold."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _timestamp(now: datetime) -> str:
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
