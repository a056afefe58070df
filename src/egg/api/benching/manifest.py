"""The manifest of a bench: its tasks and its options, written once, when it begins.

The folder needs nothing from outside. ``bench.json`` tells which tasks under which options, ``tasks.jsonl``
holds the tasks themselves, so that a bench can be scored and exported when the suite has moved on; rows, runs
and kernels follow. The manifest is written after the tasks: a folder without one has not begun.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from egg import __version__
from egg.api.benching.folder import KERNELS, MANIFEST, TASKS, write_whole
from egg.api.benching.options import BenchOptions, differences
from egg.bench.suites import Suite
from egg.core.codec import from_json, to_json
from egg.core.errors import EggError, MachineError, UsageError
from egg.core.lines import text_lines
from egg.core.source import Task, content_hash
from egg.engine.lock import LOCK

SCHEMA = "egg.bench/2"
READABLE = ("egg.bench/1", SCHEMA)
"""Version 1 called the options ``terms``."""
_BEFORE_THE_FIRST_WORD = {LOCK, TASKS, f".{TASKS}.part", f".{MANIFEST}.part"}
"""What a folder may hold when its bench was killed before it had begun."""


@dataclass(frozen=True)
class Manifest:
    """Which tasks, under which options."""

    formerly: ClassVar[Mapping[str, str]] = {"terms": "options"}
    suite: str
    source: str
    """Where the suite was read from."""
    hash: str
    """Of the chosen tasks: their keys and sources, in order."""
    tasks: Mapping[str, str]
    """Key and hash of every chosen task."""
    options: BenchOptions
    versions: Mapping[str, str]
    """Of this package, Python, PyTorch and Triton when it began; every row has its own."""
    begun: str
    """UTC, to the second."""
    schema: str = SCHEMA

    @property
    def seed(self) -> int:
        return self.options.settings.seed


def enter(folder: Path, suite: Suite, options: BenchOptions) -> Manifest:
    """The manifest of the bench in ``folder``, written where there is none; for its one writer.

    A bench over other tasks or under other options is a ``UsageError`` that says what differs: its rows
    cannot stand beside those that are there.
    """
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        _check_same(folder, manifest, suite, options)
        return manifest
    strangers = sorted({entry.name for entry in folder.iterdir()} - _BEFORE_THE_FIRST_WORD)
    if strangers:
        raise UsageError(
            f"{folder} holds other files: {', '.join(strangers[:3])}", "give the bench a folder of its own"
        )
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    hashes = {key: task.hash for key, task in suite.by_key.items()}
    manifest = Manifest(suite.name, suite.source, suite.hash, hashes, options, _versions(), moment)
    text = json.dumps({"schema": SCHEMA, **to_json(manifest)}, indent=1)
    try:
        write_whole(folder / TASKS, "".join(map(task_line, suite.tasks)))
        write_whole(folder / MANIFEST, text + "\n")
    except OSError as reason:
        raise MachineError(f"cannot write in {folder}: {reason.strerror}", "make room on the disk") from None
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the bench in ``folder``; a ``UsageError`` where there is none."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") not in READABLE:
            raise ValueError(f"its schema is {data.get('schema')!r}, this version reads {SCHEMA!r}")
        return from_json(Manifest, {**data, "schema": SCHEMA})
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"no bench in {folder}", f"a bench is a folder with {MANIFEST}") from None
    except OSError as reason:
        raise UsageError(f"cannot read {path}: {reason.strerror}", "check its permissions") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, EggError) as reason:
        raise UsageError(
            f"{path} is not the manifest of a bench: {reason}", "restore it, or use another folder"
        ) from None


def suite_of(folder: Path) -> Suite:
    """The chosen tasks, from the folder itself: the suite that they came from may be gone."""
    manifest = read_manifest(folder)
    path = folder / TASKS
    try:
        lines = text_lines(path, f"restore {path}")
        tasks = tuple(Task.from_json_line(line) for _, line in lines)
        suite = Suite(manifest.suite, tasks, manifest.source)
    except (OSError, ValueError, EggError) as reason:
        raise UsageError(
            f"cannot read the tasks of the bench in {folder}: {reason}", f"restore {path}"
        ) from None
    if suite.hash != manifest.hash:
        raise UsageError(f"{path} was changed since the bench began", "restore it")
    return suite


def kernels_of(folder: Path) -> dict[str, str]:
    """The accepted kernel files by their hash, as :func:`egg.bench.kernelbench.write` takes them."""
    found = sorted((folder / KERNELS).glob("*.py"))
    sources = [path.read_text(encoding="utf-8", errors="replace") for path in found]
    return {content_hash(source): source for source in sources}


def task_line(task: Task) -> str:
    """KernelBench's form, in ASCII: whatever the source holds."""
    row = {"level": task.level, "problem_id": task.problem_id, "name": task.name, "code": task.source}
    return json.dumps(row) + "\n"


def _versions() -> dict[str, str]:
    """As installed: nothing is imported to ask it."""
    versions = {"egg": __version__, "python": platform.python_version()}
    for package in ("torch", "triton"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


# -- the same bench? -----------------------------------------------------------------------------------


def _check_same(folder: Path, manifest: Manifest, suite: Suite, options: BenchOptions) -> None:
    changed = []
    if manifest.hash != suite.hash:
        changed.append(f"the tasks ({_tasks_differ(manifest.tasks, suite)})")
    changed += differences(manifest.options, options)
    if changed:
        raise UsageError(
            f"{folder} is a bench of {manifest.suite} that differs in {'; '.join(changed)}",
            "go on with the options it was begun with, or give this bench a folder of its own",
        )


def _tasks_differ(before: Mapping[str, str], suite: Suite) -> str:
    now = {key: task.hash for key, task in suite.by_key.items()}
    differing = {
        "new": [key for key in now if key not in before],
        "missing": [key for key in before if key not in now],
        "changed": [key for key in now if key in before and now[key] != before[key]],
    }
    parts = [f"{len(keys)} {word}: {_some(keys)}" for word, keys in differing.items() if keys]
    return ", ".join(parts) or "in another order"


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
