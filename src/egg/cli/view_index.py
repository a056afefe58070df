"""What ``egg view`` shows of a folder: the runs and benches in it, found by walking through it.

A request names a place by its path relative to the folder. It is looked up among the places that were found,
so no request can name a file. Symbolic links are not followed: a run that was unpacked here cannot show
what lies elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

from egg.api.benching.folder import MANIFEST, ROWS, RUNS, TASKS, WORKERS_LOG
from egg.engine.log import LOG

DEPTH = 4
"""Folders between the one that is served and a run or bench in it, at most."""
MOST = 2000
"""Places that are listed, at most."""


class Kind(StrEnum):
    RUN = "run"
    BENCH = "bench"


@dataclass(frozen=True)
class Place:
    """A run or a bench below the folder that is served."""

    kind: Kind
    path: Path
    name: str
    """Its path relative to that folder: what a request calls it."""

    @property
    def address(self) -> str:
        return f"/{self.kind.value}?at={quote(self.name, safe='')}"

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that change while it goes on."""
        if self.kind is Kind.RUN:
            return (self.path / LOG,)
        return tuple(self.path / name for name in (MANIFEST, ROWS, TASKS, WORKERS_LOG))

    @property
    def changed(self) -> str:
        moments = [path.stat().st_mtime for path in self.files if _is_plain(path)]
        return datetime.fromtimestamp(max(moments), UTC).strftime("%Y-%m-%d %H:%M:%S") if moments else ""


class PlaceIndex:
    """Every place below one folder, as it is at the moment of asking."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def places(self) -> list[Place]:
        """Runs and benches; the runs of a bench are that bench's."""
        found: list[Place] = []
        for place in self._walk(self.root, DEPTH):
            found.append(place)
            if len(found) == MOST:
                break
        return found

    def runs_of(self, bench: Place) -> list[Place]:
        inside = bench.path / RUNS
        if inside.is_symlink() or not inside.is_dir():
            return []
        return [place for place in self._walk(inside, 1) if place.kind is Kind.RUN]

    def find(self, name: str, kind: Kind) -> Place | None:
        """The place of that name: one of :meth:`places`, or a run of a bench among them."""
        for place in self.places():
            if place.name == name and place.kind is kind:
                return place
            if place.kind is Kind.BENCH and kind is Kind.RUN and name.startswith(_inside(place)):
                return next((run for run in self.runs_of(place) if run.name == name), None)
        return None

    def _walk(self, folder: Path, depth: int) -> Iterator[Place]:
        kind = _kind(folder)
        if kind is not None:
            yield Place(kind, folder, os.path.relpath(folder, self.root))
            return
        if depth == 0:
            return
        try:
            inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return  # a folder that may not be read, or is gone, shows nothing
        for path in inner:
            if not os.path.basename(path).startswith("."):
                yield from self._walk(Path(path), depth - 1)


def tag_of(places: list[Place]) -> str:
    """Names the state of all their files: another one, another tag."""
    seen = hashlib.sha256()
    for place in places:
        seen.update(place.name.encode("utf-8", "surrogateescape"))
        for path in place.files:
            if _is_plain(path):
                found = path.stat()
                seen.update(f"{path.name} {found.st_size} {found.st_mtime_ns}".encode())
    return f'"{seen.hexdigest()[:32]}"'


def _kind(folder: Path) -> Kind | None:
    if any((folder / name).is_symlink() for name in (LOG, MANIFEST, ROWS, TASKS, WORKERS_LOG)):
        return None
    if _is_plain(folder / LOG):
        return Kind.RUN
    if _is_plain(folder / ROWS) or (_is_plain(folder / MANIFEST) and (folder / RUNS).is_dir()):
        return Kind.BENCH
    return None


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _inside(bench: Place) -> str:
    return RUNS + "/" if bench.name == "." else f"{bench.name}/{RUNS}/"
