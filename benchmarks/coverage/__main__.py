"""``python -m benchmarks.coverage SUITE... --out ROWS``: one row a task; see the README beside this file.

Writing and judging happen in a process of their own per task, which is ended with its children when its time
is over.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.domain.files import GPU, written
from egg.bench.listing import key_of
from egg.bench.suites import load
from egg.core.errors import EggError
from egg.core.source import Task
from egg.expert.assemble import Fault, NothingToWrite
from egg.expert.parts import Unfit

Row = dict[str, Any]
EVAL = "from egg.cli.app import main; main()"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__)
    parser.add_argument(
        "suites", nargs="+", help="as for egg bench: a bundled suite, a .jsonl file, a folder"
    )
    parser.add_argument("--out", type=Path, required=True, help="rows, one JSON object a line")
    parser.add_argument("--ids", help="which tasks, as for egg bench")
    parser.add_argument("--seconds", type=float, default=60.0, help="for writing, and again for judging")
    parser.add_argument("--files", type=Path, help="a folder for the kernel files")
    parser.add_argument("--table", action="store_true", help="print the rows that are there, and run nothing")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    tasks = [(suite, task) for suite in given.suites for task in load(suite, ids=given.ids).tasks]
    if given.write:
        return write_one(tasks[0][1], given.write)
    done = read(given.out)
    for suite, task in () if given.table else tasks:
        if (suite, key_of(task)) not in done:
            row = covered(suite, task, given.seconds, given.files)
            done[suite, key_of(task)] = row
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(line_of(row), flush=True)
    if given.table:
        print("\n".join(map(line_of, done.values())))
    print(dict(Counter(row["outcome"] for row in done.values())))
    return 0


def read(path: Path) -> dict[tuple[str, str], Row]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {(row["suite"], row["key"]): row for row in map(json.loads, lines)}


def line_of(row: Row) -> str:
    seconds = f"{row['seconds']['writing']:5.1f} + {row['seconds']['judging']:5.1f} s"
    left = f"  left: {', '.join(row['left'])}" if row["left"] else ""
    return f"{row['outcome']:9} {seconds}  {row['kernels']:3} {row['name']}  {row['reason'][:300]}{left}"


def covered(suite: str, task: Task, seconds: float, files: Path | None) -> Row:
    """The row of one task."""
    row: Row = {"suite": suite, "key": key_of(task), "name": task.name, "outcome": "late", "reason": ""}
    row |= {"seconds": {"writing": 0.0, "judging": 0.0}, "kernels": 0, "left": []}
    with tempfile.TemporaryDirectory() as folder:
        place = files or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        kernel, source = place / f"{task.name}.kernel.py", Path(folder) / f"{task.name}.py"
        source.write_text(task.source)
        write = [
            sys.executable,
            "-m",
            "benchmarks.coverage",
            str(source),
            "--out",
            os.devnull,
            "--write",
            str(kernel),
        ]
        printed, row["seconds"]["writing"] = _ran(write, seconds)
        row |= (
            {"reason": "writing took too long"} if printed is None else json.loads(printed.splitlines()[-1])
        )
        if row["outcome"] != "written":
            return row
        judge = [sys.executable, "-c", EVAL, "eval", str(source), str(kernel), "--level", "quick"]
        printed, row["seconds"]["judging"] = _ran(
            [*judge, "--device", "cpu", "--target", GPU, "--json"], seconds
        )
    late = {"outcome": "late", "reason": "judging took too long"}
    return row | (late if printed is None else _verdict(printed))


def write_one(task: Task, path: Path) -> int:
    """Write the file of one task and print what became of it as JSON."""
    try:
        made = written(task)
    except Fault as fault:
        found: Row = {"outcome": "fault", "reason": str(fault)}
    except (NothingToWrite, Unfit, EggError) as reason:
        found = {"outcome": "no file", "reason": str(reason)}
    else:
        path.write_text(made.source)
        left = sorted(set(made.structure.left_to_pytorch))
        found = {"outcome": "written", "kernels": made.structure.kernels, "left": left}
    print(json.dumps(found))
    return 0


def _ran(command: list[str], seconds: float) -> tuple[str | None, float]:
    """What a command printed and how long it took; ``None`` where its time was over."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        printed = None
    return printed, time.monotonic() - began


def _verdict(printed: str) -> Row:
    """What the judge answers; an answer without a verdict is a fault, never an acceptance."""
    try:
        answer: Row = json.loads(printed)
    except ValueError:
        return {"outcome": "fault", "reason": f"the judge printed no JSON: {printed[-200:]!r}"}
    verdict = answer.get("verdict") or {}
    refusal = verdict.get("refusal")
    if refusal:
        reason = f"{refusal['gate']}: {refusal['reason']}: {json.dumps(refusal.get('evidence'))}"
        return {"outcome": "rejected", "reason": reason}
    if "message" in answer:
        return {"outcome": "fault", "reason": str(answer["message"])}
    if "performance" not in verdict:
        return {"outcome": "fault", "reason": f"an answer without a verdict: {printed[-200:]!r}"}
    return {"outcome": "accepted", "reason": ""}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
