"""Where things lie in a bench's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from egg.bench.listing import LONGEST_NAME, key_of
from egg.core.source import Task, content_hash

MANIFEST = "bench.json"
TASKS = "tasks.jsonl"
ROWS = "rows.jsonl"
RUNS = "runs"
KERNELS = "kernels"
WORKERS_LOG = "workers.log"
"""What the worker processes, and whatever they run, wrote to standard output and error."""

_NUMBERED = re.compile(r"\d+_\d+")
_PLAIN = re.compile(r"[^/\0. ~][^/\0~]*")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def place_of(task: Task) -> str:
    """A task's name in paths: ``1_3`` for level 1, problem 3, else its own; no two of a suite share one.

    Suites see to it that names can be files. A task from elsewhere whose name cannot, or whose name looks
    like a level and a number, gets a hash in its name.
    """
    key = key_of(task)
    if key != task.name:
        return key.replace("/", "_")
    if _PLAIN.fullmatch(key) and not _NUMBERED.fullmatch(key) and len(key.encode()) <= LONGEST_NAME:
        return key
    return f"{_UNFIT.sub('_', key)[:40]}~{content_hash(key)[:8]}"


def run_folder(folder: Path, task: Task) -> Path:
    return folder / RUNS / place_of(task)


def kernel_file(folder: Path, task: Task) -> Path:
    return folder / KERNELS / f"{place_of(task)}.py"


def write_whole(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, and never half; also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    with beside.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)
