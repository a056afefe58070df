"""The sweep: every task's file at every call beside its captured one.

    python -m benchmarks.domain.sweep run SUITE... --out rows.jsonl --device cpu|cuda --workers N
    python -m benchmarks.domain.sweep table rows.jsonl
    python -m benchmarks.domain.sweep static SUITE...

A suite is a JSONL file of tasks, a folder of task files or the name of a bundled suite (``llm-ops``). Killed
at any time, ``run`` goes on with the tasks that have no row yet.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from benchmarks.domain.pool import Json, rows_of
from benchmarks.domain.static import checked
from benchmarks.domain.table import line_of, summary
from benchmarks.domain.tasks import read_tasks
from egg.core.source import Task

WORKER = "benchmarks.domain.worker"


def main(arguments: Sequence[str] | None = None) -> int:
    terms = _parser().parse_args(arguments)
    if terms.act == "table":
        print(summary(read_rows(terms.rows), terms.lines))
        return 0
    return static(terms) if terms.act == "static" else run(terms)


def run(terms: argparse.Namespace) -> int:
    tasks = read_tasks(terms.suites, _ids(terms.ids))
    known = {row["key"]: row for row in read_rows(terms.out)} if terms.out.exists() else {}
    if terms.retry:
        known = {key: row for key, row in known.items() if not ("trouble" in row or "cut" in row)}
    left = {key: task for key, task in tasks.items() if known.get(key, {}).get("task") != task.hash}
    until = time.monotonic() + terms.seconds if terms.seconds else inf
    requests, at = _requests(left, terms), 0
    with terms.out.open("a", encoding="utf-8") as out:
        for at, row in enumerate(rows_of(requests, WORKER, terms.device, terms.workers, until), 1):
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{at}/{len(left)} {line_of(row)}", flush=True)
    if at < len(left):
        print("out of time: the same command goes on")
    print(summary([row for row in read_rows(terms.out) if row["key"] in tasks], terms.lines))
    return 0


def static(terms: argparse.Namespace) -> int:
    """Files alone, as many at a time as there are workers."""
    requests = list(_requests(read_tasks(terms.suites, _ids(terms.ids)), terms, calls=False))
    for line in checked(rows_of(requests, WORKER, "cpu", terms.workers), terms.files):
        print(line, flush=True)
    return 0


def _requests(tasks: dict[str, Task], terms: argparse.Namespace, calls: bool = True) -> Iterator[Json]:
    """Whole networks first: none of them should be the last to end."""
    for key, task in sorted(tasks.items(), key=lambda item: -(item[1].level or 0)):
        yield request(key, task, seconds=terms.task_seconds, silence=terms.silence, calls=calls)


def request(
    key: str,
    task: Task,
    *,
    seconds: float,
    silence: float,
    rescale: bool = True,
    sample: int = 0,
    kind: str = "",
    calls: bool = True,
) -> Json:
    """What a worker is asked: ``calls`` or its file alone; the others are as ``work.Terms`` has them."""
    held = {"key": key, "name": task.name, "source": task.source}
    held |= {"level": task.level, "problem": task.problem_id}
    held["calls"] = calls
    return held | {"seconds": seconds, "silence": silence, "rescale": rescale, "sample": sample, "kind": kind}


def read_rows(path: Path) -> list[Json]:
    """The last row of every task; a torn last line is passed over."""
    found: dict[str, Json] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n") and line.strip():
            row = json.loads(line)
            found[row["key"]] = row
    return list(found.values())


def _ids(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.domain.sweep")
    acts = parser.add_subparsers(dest="act", required=True)
    one = acts.add_parser("run", help="try every call of every task")
    one.add_argument("suites", nargs="+")
    one.add_argument("--out", type=Path, required=True, help="rows are appended here")
    one.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--ids", default="", help="1/3,2/7 or names")
    one.add_argument("--task-seconds", type=float, default=300.0, help="begin no call of a task after that")
    one.add_argument("--silence", type=float, default=120.0, help="give a single call up after that")
    one.add_argument("--seconds", type=float, default=0.0, help="stop after that; the next run goes on")
    one.add_argument("--retry", action="store_true", help="try again what a fault or its time cut short")
    one.add_argument("--lines", type=int, default=60, help="of the summary")
    two = acts.add_parser("table", help="what rows come to")
    two.add_argument("rows", type=Path)
    two.add_argument("--lines", type=int, default=60)
    three = acts.add_parser("static", help="KernelBench's static check over every task's file")
    three.add_argument("suites", nargs="+")
    three.add_argument("--ids", default="")
    three.add_argument("--workers", type=int, default=1)
    three.add_argument("--task-seconds", type=float, default=600.0, help="give a task up after that")
    three.set_defaults(silence=0.0)
    three.add_argument("--files", type=Path, help="keep the kernel files in this folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
