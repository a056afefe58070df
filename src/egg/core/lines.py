"""A file of lines that only grows: each line is there whole or not at all, and a killed writer loses nothing.

One rule keeps it readable at any moment: *a line counts once its newline is there*. A line is written with
one ``write`` and flushed to the disk, so what a killed writer leaves is whole lines and at most one torn
one at the end. Readers pass over that; the next writer cuts it off, after making sure that it is the
beginning of a line of this file: a wrong file stays as it is. Damage anywhere else was not done
by us, and is an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from egg.core.errors import MachineError, UsageError
from egg.core.locks import try_lock


def whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Every whole line that is not blank, with its number in the file; none where there is no file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as reason:
        raise UsageError(f"cannot read {path}: {reason.strerror}", "check the path") from None
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].split(b"\n")[:-1], 1):
        if line.strip():
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError:
                raise UsageError(f"{path} line {number} is not UTF-8", "remove that line") from None


def text_lines(path: Path, hint: str) -> list[tuple[int, str]]:
    """The lines of a file of JSON lines that are not blank, with their numbers; for files that others wrote.

    A line ends at a newline only, since text in JSON may hold other line ends; the last one may lack it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}", hint) from None
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"cannot read {path}: {reason}", hint) from None
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


class LineFile:
    """The one writer of such a file. ``opening`` is how each of its lines begins."""

    def __init__(self, path: Path, opening: str) -> None:
        self.path = path
        self._opening = opening.encode()
        self._handle = self._open()
        try:
            self._take()
            self._cut_torn_line()
        except BaseException:
            self.close()
            raise

    def add(self, line: str) -> None:
        """Append a line. When this returns, it is on the disk; where it fails, nothing of it is.

        Interrupted by Ctrl-C, it is there whole or not at all.
        """
        if self._handle is None:
            raise ValueError("the file is closed")
        data = line.encode("utf-8") + b"\n"
        if b"\n" in data[:-1] or not data.startswith(self._opening):
            raise ValueError(f"not a line of this file: {line[:60]!r}")
        end = os.fstat(self._handle).st_size
        try:
            written = os.write(self._handle, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes fitted")
            os.fsync(self._handle)
        except OSError as reason:
            self._cut(end)
            raise MachineError(
                f"cannot write {self.path}: {reason.strerror or reason}",
                "make room on the disk; what was written before is kept",
            ) from reason
        except BaseException:
            if os.fstat(self._handle).st_size != end + len(data):
                self._cut(end)
            raise

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int | None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as reason:
            raise UsageError(f"cannot write {self.path}: {reason.strerror}", "choose another place") from None

    def _take(self) -> None:
        """Be the only writer."""
        assert self._handle is not None
        if not try_lock(self._handle, self.path, "use a local disk, or mount it with locks"):
            raise UsageError(
                f"{self.path} is being written by another process", "wait until it ends, or stop it"
            )

    def _cut_torn_line(self) -> None:
        """Cut off what follows the last whole line, where it is ours."""
        assert self._handle is not None
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        torn = data[whole:]
        if torn and not torn.startswith(self._opening[: len(torn)]):
            raise UsageError(f"{self.path} does not end in a line of ours", "choose another place")
        if torn:
            os.ftruncate(self._handle, whole)

    def _cut(self, end: int) -> None:
        """Cut off what did not become a line; a torn end that stays closes the file, nothing follows it."""
        assert self._handle is not None
        try:
            os.ftruncate(self._handle, end)
        except OSError:
            self.close()
