"""The folder: entries and kernel files by content, for many processes at once.

::

    entries/<graph>-<terms>.json    one entry (:mod:`egg.store.entries`)
    kernels/<hash>.py               a kernel file, named by the hash of its text
    assemblies/<hash>.json          whether a whole graph gained from the kernels for its layers
    outlines/<hash>.json            the layers that repeat in a graph
    steps/<hash>.json               the forward and backward graphs of a graph that trains
    runs/<key>/                     the runs of ``egg tune``, with their logs
    damaged/                        what was set aside
    lock

Readers take no lock: a file is replaced in one step, so it is the old one or the new one. Writers that build
on what is there (counts, states) hold the lock of the folder, which the operating system releases with the
process that held it. A kernel file is written before the entry that names it, and its text is checked against
that name before it is used.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from egg.core.codec import from_json, to_json
from egg.core.errors import MachineError, UsageError
from egg.core.places import data_folder
from egg.core.source import content_sha256
from egg.store.claims import Claim
from egg.store.entries import (
    Assembly,
    Damaged,
    Entry,
    OtherSchema,
    Outline,
    Recorded,
    Rejected,
    Seen,
    Step,
    Tuned,
)

VARIABLE = "EGG_STORE"
PATIENCE_SECONDS = 30.0
"""How long a writer waits for another."""
PAUSE_SECONDS = 0.005
MOST_FAILURES = 8
"""Failures of a kernel that its entry keeps."""

ENTRIES, KERNELS, RUNS = "entries", "kernels", "runs"
ASSEMBLIES, OUTLINES, STEPS = "assemblies", "outlines", "steps"
DAMAGED, LOCK = "damaged", "lock"

Kept = TypeVar("Kept", Assembly, Outline, Step)
Notice = Callable[[str], None]
"""Receives what a person should know and no program has to act on."""


def store_folder(named: Path | str | None, environ: Mapping[str, str]) -> Path:
    """The folder that was named, that of ``EGG_STORE``, or ``kernels`` under the user's data."""
    chosen = named or environ.get(VARIABLE) or data_folder(environ) / "kernels"
    return Path(chosen).expanduser().absolute()


def is_store(folder: Path) -> bool:
    """Whether a folder holds entries of a store."""
    return (folder / ENTRIES).is_dir()


class Missing(UsageError):
    """An entry that another process removed."""


class Store:
    """A folder of entries. Nothing is made before the first write."""

    def __init__(self, folder: Path, notice: Notice) -> None:
        self.folder = folder
        self._notice = notice

    # -- reading -----------------------------------------------------------------------------------

    def find(self, claim: Claim) -> Entry | None:
        """The entry of a claim. A tuned one for the same graph under other terms is named, and not used."""
        entry = self._read(self._path(claim.key))
        if entry is not None and entry.claim != claim:
            self._notice(f"entry {entry.key} is not used: it is of another graph with the same key")
            return None
        if entry is None:
            for other in self._named(f"{claim.graph_key}-*"):
                if isinstance(other.state, Tuned):
                    self._notice(
                        f"kernel {other.key} is not used: it was made for {claim.differs(other.claim)}"
                    )
        return entry

    def get(self, key: str) -> Entry | None:
        """The entry under a whole key."""
        return self._read(self._path(key))

    def entries(self) -> tuple[Entry, ...]:
        """All of them, the heaviest first."""
        found = self._named("*")
        return tuple(sorted(found, key=lambda entry: (-entry.seen.weight, entry.key)))

    def named(self, prefix: str) -> Entry:
        """The one entry whose key begins so."""
        found = [entry for entry in self.entries() if entry.key.startswith(prefix)]
        if len(found) == 1 and prefix:
            return found[0]
        wrong = "no entry" if not found else f"{len(found)} entries"
        raise UsageError(
            f"{wrong} in {self.folder} with a key that begins with {prefix!r}", "see `egg kernels list`"
        )

    def kernel_path(self, entry: Entry) -> Path | None:
        """The kernel file of a tuned entry, checked against its name; ``None`` for any other state.

        An entry whose kernel is missing or changed is set aside with it, and its graph is unknown again.
        """
        if not isinstance(entry.state, Tuned):
            return None
        path = self._kernel(entry.state.kernel)
        wrong = _fault(path)
        if not wrong:
            return path
        why = f"kernel {entry.state.kernel} {wrong}"
        self._discard(why, lambda: bool(_fault(path)), self._path(entry.key), path)
        return None

    # -- writing -----------------------------------------------------------------------------------

    def record(self, claim: Claim, task: str, seen: Seen) -> Entry:
        """Count a graph; a new entry where there is none."""
        with self._locked():
            return self._change(claim.key, lambda old: replace(old, seen=old.seen + seen), Entry(claim, task))

    def count(self, key: str, seen: Seen) -> None:
        """Add to the counts of an entry; nothing where it is no longer there."""
        with self._locked(), suppress(Missing):
            self._change(key, lambda old: replace(old, seen=old.seen + seen))

    def tuned(self, key: str, kernel: str, state: Tuned) -> None:
        """Keep a kernel file and the verdict on it."""
        if content_sha256(kernel) != state.kernel:
            raise ValueError(f"the kernel file is not {state.kernel}")
        with self._locked():
            self._write(self._kernel(state.kernel), kernel)
            self._change(key, lambda old: replace(old, state=state, when=_now()))

    def rejected(self, key: str, reason: str) -> None:
        with self._locked():
            self._change(key, lambda old: replace(old, state=Rejected(reason), when=_now()))

    def failed(self, key: str, failure: str) -> None:
        """Keep what a kernel raised in a program."""
        with self._locked():
            self._change(key, lambda old: replace(old, failures=(*old.failures, failure)[-MOST_FAILURES:]))

    def remove(self, entries: Iterable[Entry]) -> int:
        """Delete entries with their runs, and kernel files that no entry names; how many entries."""
        with self._locked():
            count = 0
            for entry in entries:
                with suppress(FileNotFoundError):
                    self._path(entry.key).unlink()
                    count += 1
                for run in (self.folder / RUNS).glob(f"{entry.key}-*"):
                    shutil.rmtree(run)
            kept = {e.state.kernel for e in self._named("*", locked=True) if isinstance(e.state, Tuned)}
            for path in (self.folder / KERNELS).glob("[0-9a-f]*.py"):
                if path.stem not in kept:
                    path.unlink()
        return count

    def take_in(self, other: Store, entries: Iterable[Entry]) -> int:
        """Copy entries of another store with their kernels; how many were new here or decided there alone.

        What this store has decided stays. Counts are those of the store that has the entry first.
        """
        taken = 0
        for entry in entries:
            path = other.kernel_path(entry)
            if path is None and isinstance(entry.state, Tuned):
                continue
            with self._locked():
                if path is not None:
                    self._write(self._kernel(path.stem), path.read_bytes().decode("utf-8"))
                taken += self._merge(entry)
        return taken

    def assembly(self, name: str) -> Assembly | None:
        """The verdict on a whole graph; ``None`` where there is none that can be read."""
        return self._kept(self.folder / ASSEMBLIES / f"{name}.json", Assembly)

    def assembled(self, name: str, verdict: Assembly) -> None:
        self._write(self.folder / ASSEMBLIES / f"{name}.json", json.dumps(to_json(verdict)) + "\n")

    def outline(self, name: str) -> Outline | None:
        """What was found in a graph; ``None`` where that is not known."""
        return self._kept(self.folder / OUTLINES / f"{name}.json", Outline)

    def outlined(self, name: str, outline: Outline) -> None:
        self._write(self.folder / OUTLINES / f"{name}.json", json.dumps(to_json(outline)) + "\n")

    def step(self, name: str) -> Step | None:
        """The graphs of one that trains; ``None`` where they are not known."""
        return self._kept(self.folder / STEPS / f"{name}.json", Step)

    def stepped(self, name: str, step: Step) -> None:
        self._write(self.folder / STEPS / f"{name}.json", json.dumps(to_json(step)) + "\n")

    def _kept(self, path: Path, kind: type[Kept]) -> Kept | None:
        try:
            return from_json(kind, json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as reason:
            self._notice(f"{path} is ignored: {reason}")
            return None

    def run_folder(self, entry: Entry, label: str) -> Path:
        """Where the run that tunes an entry is kept."""
        return self.folder / RUNS / f"{entry.key}-{label}"

    # -- inside ------------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self.folder / ENTRIES / f"{key}.json"

    def _kernel(self, name: str) -> Path:
        return self.folder / KERNELS / f"{name}.py"

    def _named(self, pattern: str, *, locked: bool = False) -> list[Entry]:
        paths = sorted((self.folder / ENTRIES).glob(f"{pattern}.json"))
        return [entry for path in paths if (entry := self._read(path, locked=locked)) is not None]

    def _read(self, path: Path, *, locked: bool = False) -> Entry | None:
        """An entry, or ``None`` for one that is not there or cannot be used, the latter with a notice."""
        try:
            return _parsed(path)
        except OtherSchema as reason:
            self._notice(f"entry {path.stem} is ignored: {reason}")
        except Damaged as reason:
            why = f"entry {path.stem} is damaged: {reason}"
            return self._set_aside(why, path) if locked else self._discard(why, lambda: _damaged(path), path)
        except OSError as error:
            raise MachineError(
                f"cannot read {path}: {error.strerror}",
                f"check the permissions of the store, or name another with {VARIABLE}",
            ) from None
        return None

    def _change(self, key: str, change: Callable[[Entry], Entry], new: Entry | None = None) -> Entry:
        """Replace an entry by what ``change`` makes of it; the caller holds the lock."""
        old = self._read(self._path(key), locked=True) or new
        if old is None:
            raise Missing(f"no entry {key} in {self.folder}", "another process removed it")
        changed = change(old)
        self._write(self._path(key), changed.to_text())
        return changed

    def _merge(self, entry: Entry) -> bool:
        own = self._read(self._path(entry.key), locked=True)
        if own is not None and (not isinstance(own.state, Recorded) or isinstance(entry.state, Recorded)):
            return False
        merged = entry if own is None else replace(own, state=entry.state, when=entry.when)
        self._write(self._path(entry.key), merged.to_text())
        return True

    def _write(self, path: Path, text: str) -> None:
        """Replace a file in one step; it is on the disk when this returns."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as handle:
                    handle.write(text.encode("utf-8"))
                    handle.flush()
                    os.fsync(handle.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def _discard(self, why: str, still: Callable[[], bool], *paths: Path) -> None:
        """Set files aside that were read without the lock, if they are ``still`` damaged under it."""
        try:
            with self._locked():
                if still():
                    self._set_aside(why, *paths)
        except MachineError as error:
            self._notice(f"{why}; ignored ({error.message})")

    def _set_aside(self, why: str, *paths: Path) -> None:
        where = self.folder / DAMAGED
        try:
            where.mkdir(parents=True, exist_ok=True)
            for path in paths:
                with suppress(FileNotFoundError):
                    path.replace(where / f"{path.name}.{secrets.token_hex(4)}")
            self._notice(f"{why}; set aside in {where}")
        except OSError as error:
            self._notice(f"{why}; ignored ({error.strerror})")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            _take(handle, self.folder)
            yield
        finally:
            os.close(handle)

    def _unwritable(self, error: OSError) -> MachineError:
        return MachineError(
            f"cannot write in the store {self.folder}: {error.strerror}",
            f"name a folder of your own with --store or {VARIABLE}",
        )


def _take(handle: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"another process has held the lock of {folder} for {PATIENCE_SECONDS:g} s",
                    "end that process; the lock ends with it",
                ) from None
            time.sleep(PAUSE_SECONDS)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise MachineError(
                f"the file system of {folder} has no locks", "keep the store on a local disk"
            ) from None


def _parsed(path: Path) -> Entry | None:
    try:
        entry = Entry.from_text(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as reason:
        raise Damaged(str(reason)) from None
    if entry.key != path.stem:
        raise Damaged(f"its claim has the key {entry.key}")
    return entry


def _damaged(path: Path) -> bool:
    try:
        _parsed(path)
    except Damaged:
        return True
    return False


def _fault(path: Path) -> str:
    """What is wrong with a kernel file; empty where its content has the hash that it is named by."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        return f"cannot be read: {reason}"
    return "" if content_sha256(text) == path.stem else "has another content than its name says"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
