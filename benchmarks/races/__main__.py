"""``python -m benchmarks.races SUITE... --out ROWS``: one row a program; see the README beside this file."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from egg.bench.listing import key_of
from egg.bench.suites import load
from egg.core.source import Task

OURS = "ours"
NO_MEMORY = "OutOfMemoryError"
"""In the reason of a form that failed so."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.races", description=__doc__)
    parser.add_argument("suites", nargs="+", help="as for egg bench, or NAME:IDS for some tasks of a suite")
    parser.add_argument("--out", type=Path, required=True, help="rows, one JSON object a line")
    parser.add_argument("--workers", type=int, default=12, help="programs that are built at a time")
    parser.add_argument("--modes", default="compile,reduce", help="forms of torch.compile to race against")
    parser.add_argument(
        "--kernels", type=Path, help="a folder with NAME.py to race in place of first kernels"
    )
    parser.add_argument("--task-seconds", type=float, default=150.0, help="then a program is given up")
    parser.add_argument("--seconds", type=float, default=540.0, help="then no program is begun any more")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        return race_one(given)
    began = time.monotonic()
    tasks = [task for suite in given.suites for task in tasks_of(suite)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.workers) as pool:

        def one(task: Task) -> None:
            if time.monotonic() - began < given.seconds:
                race_apart(task, given, Path(folder))

        list(pool.map(one, tasks))
        crowded = out_of_memory(given.out)
        for task in tasks:
            if task.name in crowded:
                one(task)
    return 0


def out_of_memory(rows: Path) -> set[str]:
    """The programs of which a form found no memory beside the others; their rows are dropped."""
    lines = [line for line in rows.read_text().splitlines() if line] if rows.exists() else []
    crowded = [line for line in lines if NO_MEMORY in line]
    if crowded:
        rows.write_text("".join(f"{line}\n" for line in lines if NO_MEMORY not in line))
    return {json.loads(line)["task"] for line in crowded}


def tasks_of(suite: str) -> tuple[Task, ...]:
    name, _, ids = suite.partition(":")
    return load(name, ids=ids or None).tasks


def race_apart(task: Task, given: argparse.Namespace, folder: Path) -> None:
    """Race one program in a process of its own, and print its line."""
    source = folder / f"{key_of(task).replace('/', '_')}_{task.name}.json"
    source.write_text(json.dumps({"name": task.name, "source": task.source}))
    command = [sys.executable, "-m", "benchmarks.races", "-", "--one", str(source), "--out", str(given.out)]
    command += ["--modes", given.modes, "--lock", str(folder / "lock")]
    command += ["--kernels", str(given.kernels)] if given.kernels else []
    environ = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environ["TRITON_CACHE_DIR"] = environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"cache_{source.stem}")
    try:
        done = subprocess.run(
            command, env=environ, timeout=given.task_seconds, capture_output=True, text=True, check=False
        )
        lines = done.stdout.splitlines()
        line = lines[-1] if done.returncode == 0 and lines else f"{task.name}: {done.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        line = f"{task.name}: not raced within {given.task_seconds:.0f} s"
    print(line, flush=True)


def race_one(given: argparse.Namespace) -> int:
    from benchmarks.races.one import raced

    data = json.loads(given.one.read_text())
    task = Task(data["name"], data["source"])
    path = given.kernels / f"{task.name}.py" if given.kernels else None
    kernel = path.read_text() if path is not None and path.exists() else None
    row = raced(task, tuple(filter(None, given.modes.split(","))), given.lock, kernel)
    with given.out.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(row) + "\n")
    print(line_of(row))
    return 0


def line_of(row: dict[str, Any]) -> str:
    times = row["ms"]
    others = [value for name, value in times.items() if name != OURS]
    ratio = f"{min(others) / times[OURS]:6.2f}x" if OURS in times and others else "   -   "
    forms = " ".join(f"{name} {value:.3f}" for name, value in times.items())
    failed = "".join(f"  {name} FAILED {reason[:160]}" for name, reason in row["failed"].items())
    error = f"{row['error'][OURS]:.1e}" if OURS in row["error"] else "-"
    return f"{ratio} {row['task'][:34]:34} {forms}  err {error} {row['seconds']}s{failed}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
