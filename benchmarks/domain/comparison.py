"""KernelBench's own comparison of every task's file with eager, and how far eager is from the exact result.

    python -m benchmarks.domain.comparison run SUITE... --out rows.jsonl --device cuda --workers N
    python -m benchmarks.domain.comparison table rows.jsonl

KernelBench calls a kernel right where ``allclose`` holds with eager's output on five draws of the task's own
inputs, at 1e-4 for fp32 and 1e-2 for 16 bits. Beside each answer stands the same question for eager against
an fp64 run: where eager misses it, a kernel that misses it may be the more exact of the two. Killed at any
time, ``run`` goes on with the tasks that have no row yet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.domain.pool import Json, reported_by_fork, rows_of, serve
from benchmarks.domain.sweep import read_rows
from benchmarks.domain.tasks import read_tasks
from egg.core.source import Task

WORKER = "benchmarks.domain.comparison"
TRIALS = 5
WRITING_SECONDS, SILENCE = 120.0, 150.0


def main(arguments: Sequence[str]) -> int:
    if len(arguments) == 1:  # as a worker: the device's name alone
        serve(_Comparer(arguments[0]).answer)
        return 0
    terms = _parser().parse_args(arguments)
    if terms.act == "table":
        print("\n".join(table(read_rows(terms.rows))))
        return 0
    return run(terms)


def run(terms: argparse.Namespace) -> int:
    tasks = read_tasks(terms.suites)
    known = {row["key"] for row in read_rows(terms.out)} if terms.out.exists() else set()
    left = {key: task for key, task in tasks.items() if key not in known}
    requests = [
        {"key": key, "name": task.name, "source": task.source}
        for key, task in sorted(left.items(), key=lambda item: -(item[1].level or 0))
    ]
    until = time.monotonic() + terms.seconds if terms.seconds else inf
    with terms.out.open("a", encoding="utf-8") as out:
        for row in rows_of(requests, WORKER, terms.device, terms.workers, until):
            out.write(json.dumps(row) + "\n")
            out.flush()
            left.pop(row["key"])
    if left:
        print("out of time: the same command goes on")
    print("\n".join(table(read_rows(terms.out))))
    return 0


# -- in the worker -------------------------------------------------------------------------------------------


class _Comparer:
    """Answers a request in two forks: one writes the file without touching the device, one compares."""

    def __init__(self, device: str) -> None:
        from benchmarks.domain.work import file_of

        self._device, self._file_of = device, file_of

    def answer(self, request: Json) -> Json:
        task = Task(request["name"], request["source"])
        row: Json = {"key": request["key"], "name": task.name, "trials": []}
        written: Json = {}
        for message in reported_by_fork(lambda report: report(self._file_of(task)), WRITING_SECONDS):
            written |= message
        source = written.get("source")
        if source is None:
            return row | {"reason": written.get("reason") or f"no file: {written.get('exit')}"}
        for message in reported_by_fork(lambda report: _compare(task, source, self._device, report), SILENCE):
            if "trial" in message:
                row["trials"].append(message["trial"])
            elif message.get("exit") != 0:
                row |= {"trouble": str(message)[:300]}
        return row


def _compare(task: Task, source: str, device_name: str, report: Any) -> None:
    """Five draws of the task's own inputs, both sides under the weights of the same seed."""
    import torch

    from egg.core.policy import Precision
    from egg.evaluator.reference.reference import Reference
    from egg.evaluator.task.program import Program, outputs_of
    from egg.evaluator.task.seeds import BUILD_SEED, FORWARD_SEED
    from egg.evaluator.worker.importing import import_candidate

    device = torch.device(device_name)
    if device.type == "cpu":
        from egg.evaluator.interpreter import install

        install()
    with tempfile.TemporaryDirectory() as folder, Program.load(task) as program:
        os.chdir(folder)
        reference = Reference(program, Precision.MATCH, device)
        args, kwargs = program.init_arguments()
        torch.manual_seed(BUILD_SEED)
        own = import_candidate(source).ModelNew(*args, **kwargs).to(device)
        own.load_state_dict(reference.module.state_dict(), strict=False)
        for number in range(TRIALS):
            case = reference.case(f"draw {number}")
            torch.manual_seed(FORWARD_SEED)
            with torch.no_grad():
                found = outputs_of(own(*case.inputs))
            report({"trial": _judged(case, found, reference.yardstick.value)})


def _judged(case: Any, found: list[tuple[str, Any]], yardstick: str) -> Json:
    """The worst over the outputs."""
    from egg.core.policy import Precision
    from egg.evaluator.compare.compare import Worst, compare
    from egg.evaluator.trial.checks import tensor_of

    worst, own_max = Worst(), 0.0
    for (_, own), (_, eager), (_, exact) in zip(found, case.outputs, case.golden, strict=True):
        three = tensor_of(own), tensor_of(eager), tensor_of(exact)
        worst.take(compare(*three, Precision.MATCH))
        away = (three[0].double() - three[2].double()).abs() if not three[0].is_complex() else None
        if away is not None and away.numel():
            own_max = max(own_max, float(away.nan_to_num(0.0, 0.0, 0.0).max()))
    return {
        "passes": worst.kernelbench,
        "eager_passes": worst.reference_kernelbench,
        "eager_max": worst.reference_max,
        "own_max": own_max,
        "yardstick": yardstick,
    }


# -- the table -------------------------------------------------------------------------------------------


def table(rows: Sequence[Json]) -> Iterator[str]:
    """Counts, then a line for each task whose file misses KernelBench's comparison."""
    compared = [row for row in rows if len(row["trials"]) == TRIALS and "trouble" not in row]
    missed = [row for row in compared if not _all(row, "passes")]
    agree = [row for row in compared if _all(row, "eager_passes")]
    both = [row for row in agree if not _all(row, "passes")]
    passing = len(compared) - len(missed)
    yield f"{len(rows)} tasks, {len(compared)} compared, {passing} pass, {len(missed)} miss"
    yield (
        f"eager itself agrees with fp64 to that tolerance in {len(agree)}; of these {len(both)} files miss: "
        f"{', '.join(row['key'] for row in both) or 'none'}"
    )
    yield ""
    yield "| task | draws that miss | eager from fp64, max | file from fp64, max | eager itself passes |"
    yield "|---|---|---|---|---|"
    for row in sorted(missed, key=lambda row: row["key"]):
        misses = sum(not trial["passes"] for trial in row["trials"])
        eager, own = (max(trial[name] for trial in row["trials"]) for name in ("eager_max", "own_max"))
        passes = "yes" if _all(row, "eager_passes") else "no"
        yield f"| {row['key']} {row['name']} | {misses} of {TRIALS} | {eager:.2g} | {own:.2g} | {passes} |"
    for row in rows:
        if row not in compared:
            yield f"not compared: {row['key']} {row['name']}: {row.get('reason') or row.get('trouble')}"


def _all(row: Json, name: str) -> bool:
    return all(trial[name] for trial in row["trials"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.domain.comparison")
    acts = parser.add_subparsers(dest="act", required=True)
    run = acts.add_parser("run")
    run.add_argument("suites", nargs="+")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--device", default="cuda")
    run.add_argument("--workers", type=int, default=4)
    run.add_argument("--seconds", type=float, default=0.0, help="begin no task later than that")
    acts.add_parser("table").add_argument("rows", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
