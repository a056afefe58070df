"""Facts of every KernelBench task at full size, without a GPU and without running any.

    python benchmarks/facts/kernelbench.py SUITE_DIR --out facts.csv --jobs 2

``SUITE_DIR`` holds JSON lines ``{level, problem_id, name, code}`` (``*.jsonl``) and, if they are to be
compared, a CSV with the columns ``level, problem_id, flops, min_bytes`` and perhaps ``eager``, measured
milliseconds. Every task has a time limit and a row; the operations of some are held against counts
made by hand. Ends with 0 where every task has facts and nothing disagrees.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hand import HAND

TARGET = "H200"
COLUMNS: tuple[str, ...] = (
    "level", "problem_id", "name", "flops", "other_flops", "least_bytes", "eager_bytes", "operations",
    "launches", "eager_ms", "pointwise_fused_ms", "whole_ms", "seconds", "reason",
)  # fmt: skip

READY = "ready"
START_SECONDS = 120.0
"""For a process to import PyTorch."""

Row = dict[str, Any]
Known = dict[tuple[int, int], dict[str, str]]


# -- one task, in a process of its own -------------------------------------------------------------


def serve(channel: Connection) -> None:
    """Answer every line with its row until there are no more."""
    from egg.analysis.savings import savings
    from egg.core.errors import EggError
    from egg.core.source import Task
    from egg.evaluator.task.workload import workload
    from egg.hardware.gpus import resolve

    gpu = resolve(TARGET)
    channel.send(READY)
    while (line := channel.recv()) is not None:
        started = time.perf_counter()
        task = Task.from_json_line(line)
        row: Row = {"level": task.level, "problem_id": task.problem_id, "name": task.name, "reason": ""}
        try:
            work = workload(task)
            times = savings(work, gpu, "match")
            row |= {
                "flops": int(work.flops),
                "other_flops": int(sum(work.flops_by_family.values()) - work.flops),
                "least_bytes": work.least_bytes,
                "eager_bytes": work.eager_bytes,
                "operations": len(work.operations),
                "launches": work.eager_launches,
                "eager_ms": round(times.eager, 4),
                "pointwise_fused_ms": round(times.pointwise_fused, 4),
                "whole_ms": round(times.whole, 4),
            }
        except EggError as error:
            row["reason"] = error.message
        row["seconds"] = round(time.perf_counter() - started, 2)
        channel.send(row)


@dataclass
class Worker:
    """A process, and the task it is at."""

    process: SpawnProcess = field(init=False)
    channel: Connection = field(init=False)
    line: str | None = None
    started: float = 0.0

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def await_start(self) -> None:
        """Importing PyTorch is not a task's time."""
        if not self.channel.poll(START_SECONDS) or self.channel.recv() != READY:
            raise SystemExit("a process for the tasks did not start")

    def give(self, line: str) -> None:
        self.line, self.started = line, time.perf_counter()
        self.channel.send(line)

    def take(self) -> Row:
        """The row of its task; a process that died has only the reason to give."""
        assert self.line is not None
        try:
            row = self.channel.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            row = _without(self.line, f"its process ended with {self.process.exitcode}")
        self.line = None
        return row

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def rows_of(lines: list[str], jobs: int, limit: float) -> Iterator[Row]:
    """A row for every line, as they come; one that takes longer than ``limit`` is given up."""
    waiting = list(reversed(lines))
    workers = [Worker() for _ in range(min(jobs, len(lines)))]
    try:
        for worker in workers:
            worker.await_start()
        while waiting or any(w.line for w in workers):
            for worker in workers:
                if worker.line is None and waiting:
                    worker.give(waiting.pop())
            ready = wait([w.channel for w in workers if w.line], timeout=0.5)
            for index, worker in enumerate(workers):
                if worker.channel in ready:
                    yield worker.take()
                elif worker.line and time.perf_counter() - worker.started > limit:
                    yield _without(worker.line, f"took more than {limit:g} s")
                    worker.end()
                if not worker.process.is_alive():
                    workers[index] = Worker()
                    workers[index].await_start()
    finally:
        for worker in workers:
            worker.end()


def _without(line: str, reason: str) -> Row:
    from egg.core.source import Task

    task = Task.from_json_line(line)
    return {"level": task.level, "problem_id": task.problem_id, "name": task.name, "reason": reason}


# -- all of them -----------------------------------------------------------------------------------


def read_lines(folder: Path) -> list[str]:
    found = [
        line
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    if not found:
        raise SystemExit(f"no *.jsonl with tasks in {folder}")
    return found


def read_known(folder: Path) -> Known:
    """Rows of the CSV that has operations and bytes, by level and number; none without such a file."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if rows and {"level", "problem_id", "flops", "min_bytes"} <= rows[0].keys():
            return {(int(r["level"]), int(r["problem_id"])): r for r in rows}
    return {}


def disagreements(rows: list[Row], known: Known) -> list[str]:
    """Where operations or least bytes are not the CSV's."""
    found = []
    for row in rows:
        entry = known.get((row["level"], row["problem_id"]))
        for ours, theirs in (("flops", "flops"), ("least_bytes", "min_bytes")):
            if entry is not None and not row["reason"] and row[ours] != int(float(entry[theirs])):
                found.append(f"{row['level']}/{row['name']}: {ours} {row[ours]}, the CSV has {entry[theirs]}")
    return found


def hand_counts(rows: list[Row]) -> tuple[list[str], list[str]]:
    """A line for each count made by hand of a task that is there; and those that disagree."""
    by_number = {(row["level"], row["problem_id"]): row for row in rows}
    lines, wrong = [], []
    for hand in HAND:
        row = by_number.get((hand.level, hand.problem_id))
        if row is None:
            continue
        line = f"{hand.level}/{hand.problem_id:<3} {hand.flops:>16}  {hand.what}"
        lines.append(line)
        if row.get("flops") != hand.flops:
            wrong.append(f"{line}: counted {row.get('flops')}")
    return lines, wrong


def against_measured(rows: list[Row], known: Known) -> str:
    """How eager's least time lies below what eager was measured to take."""
    found: list[tuple[float, Row]] = []
    for row in rows:
        measured = known.get((row["level"], row["problem_id"]), {}).get("eager")
        if measured and not row["reason"]:
            found.append((float(measured) / row["eager_ms"], row))
    if not found:
        return "no measured times"
    ratios = [ratio for ratio, _ in found]
    light = [ratio for ratio, row in found if not row["flops"]]
    below = [f"{row['level']}/{row['name']}" for ratio, row in found if ratio < 1]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    text = f"measured eager over its least time: geometric mean {mean:.2f}, least {min(ratios):.2f}"
    if light:
        text += f"; of the {len(light)} tasks without products, median {statistics.median(light):.2f}"
    return f"{text}; {len(below)} measured below it{': ' if below else ''}{', '.join(below)}"


def rooms(rows: list[Row]) -> list[str]:
    """By level, how many times faster than eager's least time the fused ones are."""
    lines = []
    for level in sorted({row["level"] for row in rows}):
        traced = [row for row in rows if row["level"] == level and not row["reason"]]
        factors = [
            math.exp(statistics.fmean(math.log(r["eager_ms"] / r[to]) for r in traced))
            for to in ("pointwise_fused_ms", "whole_ms")
        ]
        lines.append(f"level {level}: pointwise work {factors[0]:.2f}x, everything {factors[1]:.2f}x")
    return lines


def _say(line: str, details: Sequence[str] = ()) -> None:
    print("\n  ".join((line, *details)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", type=Path, metavar="SUITE_DIR")
    parser.add_argument("--out", type=Path, metavar="CSV")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one task")
    options = parser.parse_args()
    started = time.perf_counter()
    lines, known = read_lines(options.suite), read_known(options.suite)
    rows = sorted(rows_of(lines, options.jobs, options.limit), key=lambda r: (r["level"], r["problem_id"]))
    took = time.perf_counter() - started
    if options.out:
        with options.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    without = [f"{r['level']}/{r['name']}: {r['reason']}" for r in rows if r["reason"]]
    differing = disagreements(rows, known)
    counted, wrong = hand_counts(rows)
    done = len(rows) - len(without)
    _say(f"facts of {done} of {len(rows)} tasks in {took:.0f} s with {options.jobs} jobs", without)
    _say(f"operations and least bytes: {len(differing)} disagree with the CSV ({len(known)} rows)", differing)
    _say(f"operations counted by hand: {len(counted) - len(wrong)} of {len(counted)} agree", counted)
    if wrong:
        _say("these do not:", wrong)
    _say("room for fusion, geometric means over eager's least time:", rooms(rows))
    _say(against_measured(rows, known))
    return 1 if without or differing or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
