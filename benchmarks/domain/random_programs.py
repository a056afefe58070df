"""Programs drawn at random, each file tried at calls beside its captured one.

    python -m benchmarks.domain.random_programs --examples 2000 --seed 0 --workers 2 --out cases.jsonl

Every example has a row; run again, the command goes on. A program that fails is reduced: lines of its
``forward`` are taken out as long as it fails in the same way. ``--show cases.jsonl`` prints what failed, by
cause, with the smallest program of each.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from random import Random

from benchmarks.domain.grammar import program
from benchmarks.domain.outcomes import Outcome, Tried
from benchmarks.domain.pool import Json, Worker, rows_of
from benchmarks.domain.sweep import WORKER, read_rows, request
from benchmarks.domain.table import summary, tried_in
from egg.core.errors import TaskError
from egg.core.source import Task

SECONDS, SILENCE = 60.0, 30.0


def task_of(random: Random, name: str = "random_program") -> Task:
    return Task(name, program(random))


def asked(key: str, task: Task, sample: int = 0, kind: str = "") -> Json:
    return request(key, task, seconds=SECONDS, silence=SILENCE, rescale=False, sample=sample, kind=kind)


# -- what fails ------------------------------------------------------------------------------------------


def failures(row: Json) -> list[str]:
    """What must not be: ``wrong kind``, ``crash kind``, ``claimed kind``, or a fault of this package."""
    if row.get("fault"):
        return ["fault"]
    if "trouble" in row:
        return ["trouble"]
    return [word for call in tried_in(row) if (word := failure(call))]


def failure(call: Tried) -> str:
    if call.outcome in (Outcome.WRONG, Outcome.CRASH):
        return f"{call.outcome.value} {call.kind}"
    return f"claimed {call.kind}" if call.claimed else ""


def evidence(row: Json, which: str) -> str:
    """The first call that failed so, or the fault's words."""
    for call in tried_in(row):
        if failure(call) == which:
            return f"{call.name}: {call.detail}"
    return str(row.get("trouble") or row.get("reason") or "")


# -- smaller programs --------------------------------------------------------------------------------------


def reduced(task: Task, which: str, worker: Worker, most: int = 40) -> tuple[Task, Json | None]:
    """The smallest program found that still fails as ``which``, with its row."""
    smallest, row, left = task, None, most
    again = True
    while again and left > 0:
        again = False
        for smaller in _smaller(smallest):
            left -= 1
            found = worker.ask(asked("reduced", smaller, kind=which.partition(" ")[2]))
            if which in failures(found):
                smallest, row, again = smaller, found, True
                break
            if left <= 0:
                break
    return smallest, row


def _smaller(task: Task) -> Iterator[Task]:
    """The program without one line of ``forward`` (or an ``if`` and its line), the last first; then without
    a line of the constructor that nothing reads."""
    lines = task.source.split("\n")
    begin = next(at for at, line in enumerate(lines) if "def forward" in line) + 1
    end = next(at for at in range(begin, len(lines)) if lines[at].lstrip().startswith("return"))
    for at in reversed(range(begin, end)):
        if lines[at].startswith("            "):
            continue
        taken = 2 if lines[at].endswith(":") else 1
        yield from _task(task, [*lines[:at], *lines[at + taken :]])
    for at in range(begin - 1):
        made = re.match(r"        self\.(\w+) = nn", lines[at])
        if made and f"self.{made[1]}(" not in task.source:
            yield from _task(task, [*lines[:at], *lines[at + 1 :]])


def _task(task: Task, lines: Sequence[str]) -> Iterator[Task]:
    try:
        yield Task(task.name, "\n".join(lines))
    except TaskError:
        return


# -- the long run ------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    terms = _parser().parse_args(arguments)
    if terms.show:
        print("\n".join(shown(read_rows(terms.show))))
        return 0
    known = {row["key"] for row in read_rows(terms.out)} if terms.out.exists() else set()
    tasks = {f"{terms.seed}/{n}": task_of(Random(f"{terms.seed}/{n}")) for n in range(terms.examples)}
    left = {key: task for key, task in tasks.items() if key not in known}
    requests = [asked(key, task, terms.sample) for key, task in left.items()]
    reducer = Worker(WORKER, terms.device) if terms.reduce else None
    failed = 0
    try:
        with terms.out.open("a", encoding="utf-8") as out:
            until = time.monotonic() + terms.seconds if terms.seconds else inf
            for at, row in enumerate(rows_of(requests, WORKER, terms.device, terms.workers, until), 1):
                found = failures(row)
                failed += bool(found)
                if found:
                    row |= {"failures": found, "program": tasks[row["key"]].source}
                    if reducer is not None:
                        small, last = reduced(tasks[row["key"]], found[0], reducer)
                        row |= {"reduced": small.source, "evidence": evidence(last or row, found[0])}
                out.write(json.dumps(row) + "\n")
                out.flush()
                if found or at % 50 == 0:
                    line = f"{found[0]}: {row.get('evidence', '')}"[:150] if found else "right or an error"
                    print(f"{at}/{len(left)}, {failed} failed; {row['key']} {line}", flush=True)
    finally:
        if reducer is not None:
            reducer.close()
    rows = [row for row in read_rows(terms.out) if row["key"] in tasks]
    print(summary(rows, terms.lines))
    return int(any(row.get("failures") for row in rows))


def shown(rows: Sequence[Json], each: int = 1) -> Iterator[str]:
    """What failed, by cause: how often, and the shortest program of each."""
    groups: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        if row.get("failures"):
            groups[cause(row)].append(row)
    for name, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield f"## {name} ({len(found)} programs)\n"
        shortest = sorted(found, key=lambda row: len(row.get("reduced", row["program"])))
        for row in shortest[:each]:
            yield f"{row['key']}: {row.get('evidence', row['failures'][0])}\n"
            yield f"```python\n{row.get('reduced', row['program']).strip()}\n```\n"


def cause(row: Json) -> str:
    """A group for what failed: its first failure, and its words without numbers."""
    words = re.sub(r"\d[\d.e+-]*|'[^']*'|\[[^]]*\]", "_", row.get("evidence", ""))
    words = words.split(": ", 1)[-1] if row["failures"][0] not in ("fault", "trouble") else words
    return f"{row['failures'][0]}: {words[:60]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.domain.random_programs")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path("cases.jsonl"))
    parser.add_argument(
        "--sample", type=int, default=0, help="calls of a program besides the captured; 0: all"
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after that; the next run goes on")
    parser.add_argument("--no-reduce", dest="reduce", action="store_false")
    parser.add_argument("--lines", type=int, default=60, help="of the summary")
    parser.add_argument("--show", type=Path, help="print what failed in such a file, by cause")
    return parser


if __name__ == "__main__":
    sys.exit(main())
