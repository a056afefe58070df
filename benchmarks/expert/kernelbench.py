"""The built-in team over KernelBench: a run of the engine for every task, a row for every run; resumable.

    python benchmarks/expert/kernelbench.py run TASKS.jsonl... --out ROWS.jsonl --workers 4 --runs FOLDER
    python benchmarks/expert/kernelbench.py compile TASKS.jsonl... --out ROWS.jsonl --workers 2
    python benchmarks/expert/kernelbench.py audit TASKS.jsonl... --rows ROWS.jsonl --runs FOLDER --out A.jsonl
    python benchmarks/expert/kernelbench.py table ROWS.jsonl --data SLIM.jsonl

``run`` judges, on a GPU where there is one; ``compile`` needs none; ``audit`` judges a sample of what was
accepted again, with all care; ``table`` makes a page of rows. A task that has a row is not run again, one
that was cut off goes on from its log. Ends with 0 where every task asked for has a row (and stood its audit),
1 where time ran out before (or one did not stand), 130 where it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import filled, page
from rows import Row, Rows, key_of_row, read_rows, slim, to_retry
from running import Terms
from tasks import chosen, key_of, parse_ids, read_tasks, told
from workers import CompileTasks, RunTasks, Trade, rows_of

from egg.api.benching.devices import alike
from egg.core.errors import EggError
from egg.core.policy import Level, LibraryCalls
from egg.engine.budgets import BUDGETS
from egg.evaluator.judge.pool import Answer, run_jobs

FOREVER = float("inf")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return options.do(options)
    except EggError as error:
        print(f"{error.message}\n  {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


# -- run and compile ---------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    devices = alike(options.device)
    terms = Terms(
        devices[0],
        options.budget,
        LibraryCalls(options.library_calls),
        Level(options.level),
        _folder(options),
        options.minutes,
        options.skills,
    )
    _share_cores(options.workers)
    trades = [RunTasks(terms, devices[at % len(devices)]) for at in range(options.workers)]
    return _batch(options, trades)


def compile_only(options: argparse.Namespace) -> int:
    return _batch(options, [CompileTasks(options.target, _folder(options))] * options.workers)


def _share_cores(workers: int) -> None:
    """The opponents are compiled by as many processes as there are cores, in every worker, unless told."""
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(max(1, cores // workers)))


def _folder(options: argparse.Namespace) -> Path:
    return (options.runs or options.out.with_suffix("")).resolve()


def _batch(options: argparse.Namespace, trades: Sequence[Trade]) -> int:
    """Run what has no row yet and add a row for each, with a line for whoever looks on."""
    tasks = chosen(read_tasks(options.tasks), parse_ids(options.ids))
    known = {key_of_row(row): row for row in read_rows(options.out)}
    done = {key for key, row in known.items() if not (options.retry and to_retry(row))}
    left = [task for task in tasks if key_of(task) not in done]
    print(f"{len(tasks) - len(left)} of {len(tasks)} tasks have a row in {options.out}", flush=True)
    started = time.monotonic()
    until = started + options.seconds if options.seconds else FOREVER
    count = 0
    with closing(Rows(options.out)) as rows:
        results = rows_of(left, trades, task_seconds=options.task_seconds, begin_until=until)
        with closing(results) as coming:
            for count, row in enumerate(coming, 1):
                rows.add(row)
                pace = (time.monotonic() - started) / count
                print(_line(row, len(tasks) - len(left) + count, len(tasks), pace), flush=True)
    return 0 if count == len(left) else 1


def _line(row: Row, done: int, of: int, pace: float) -> str:
    times = {name: found["speedup"][0] for name, found in row.get("baselines", {}).items()}
    speed = "".join(f" {ratio:.2f}x {name}" for name, ratio in times.items())
    predicted = row.get("predicted_ms")
    ms = row["ms"][0] if row.get("ms") else predicted
    told_ms = f" {ms:.4g} ms{'' if row.get('ms') else ' predicted'}" if ms else ""
    verdict = row["verdict"] if len(row["verdict"]) <= 90 else f"{row['verdict'][:87]}..."
    if row.get("trouble"):
        verdict += f" (broke off: {row['trouble'][:60]})"
    left = (of - done) * pace / 60
    seconds = row.get("seconds", {}).get("all", 0.0)
    name = f"{told(key_of_row(row))} {row['name']}"
    return f"[{done}/{of}] {name}: {verdict}{told_ms}{speed}; {seconds:.1f} s; {left:.1f} min left"


# -- the audit ---------------------------------------------------------------------------------------


def audit(options: argparse.Namespace) -> int:
    """The same command goes on: a kernel that has a row is asked again only where that blames the machine."""
    from auditing import drawn, jobs_for, kernel_of, row_of
    from record import ACCEPTED

    tasks = read_tasks(options.tasks)
    names = {key_of(task): task.name for task in tasks}
    wanted = {key_of(task) for task in chosen(tasks, parse_ids(options.ids))}
    among = [row for row in read_rows(options.rows) if key_of_row(row) in wanted]
    sample = drawn(among, options.count, options.seed)
    settled = {kernel_of(row) for row in read_rows(options.out) if not to_retry(row)}
    left = [row for row in sample if kernel_of(row) not in settled]
    _share_cores(options.workers)
    with closing(Rows(options.out)) as rows:

        def take(answer: Answer) -> None:
            row = row_of(answer, names)
            rows.add(row)
            print(
                f"{told(key_of_row(row))} {row['name']}: {row['verdict']} {row.get('reason', '')}", flush=True
            )

        run_jobs(jobs_for(left, tasks, options.runs), alike(options.device), take, options.workers)
    asked = {kernel_of(row) for row in sample}
    found = [row for row in read_rows(options.out) if kernel_of(row) in asked]
    stood = sum(row["verdict"] == ACCEPTED for row in found)
    print(f"{stood} of {len(sample)} stood the audit", flush=True)
    return 0 if stood == len(sample) else 1


# -- the table ---------------------------------------------------------------------------------------


def table(options: argparse.Namespace) -> int:
    rows = read_rows(options.rows)
    if not rows:
        print(f"no rows in {options.rows}", file=sys.stderr)
        return 2
    if options.data:
        if options.data.exists():
            options.data.unlink()
        with closing(Rows(options.data)) as kept:
            for row in rows:
                kept.add(slim(row))
    text = page(rows)
    if options.into:
        options.into.write_text(filled(options.into.read_text(encoding="utf-8"), options.section, text))
    else:
        print(text, end="")
    return 0


# -- the command line --------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    modes = parser.add_subparsers(required=True, metavar="run | compile | audit | table")

    running = modes.add_parser("run", help="run the engine on every task")
    running.set_defaults(do=run)
    _common(running)
    running.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    running.add_argument("--budget", default="quick", choices=sorted(BUDGETS))
    running.add_argument("--library-calls", default="allow", choices=[calls.value for calls in LibraryCalls])
    running.add_argument("--level", default="quick", choices=[level.value for level in Level])
    running.add_argument("--minutes", type=float, help="after which a task's search ends")
    running.add_argument("--skills", action="store_true", help="offer the built-in skills to the team")

    compiling = modes.add_parser("compile", help="write and compile every task's file, without a GPU")
    compiling.set_defaults(do=compile_only)
    _common(compiling)
    compiling.add_argument("--target", default="H200")

    auditing = modes.add_parser("audit", help="judge a sample of the accepted again, with all care")
    auditing.set_defaults(do=audit)
    auditing.add_argument("tasks", type=Path, nargs="+", metavar="TASKS.jsonl")
    auditing.add_argument("--rows", type=Path, required=True, metavar="ROWS.jsonl", help="of a batch")
    auditing.add_argument("--runs", type=Path, required=True, metavar="FOLDER", help="of that batch")
    auditing.add_argument("--out", type=Path, required=True, metavar="AUDIT.jsonl")
    auditing.add_argument("--ids", default="", help="draw from these only, as in 1/3,2/7")
    auditing.add_argument("--count", type=int, default=20)
    auditing.add_argument("--seed", type=int, default=0, help="of the lot")
    auditing.add_argument("--workers", type=int, default=1)
    auditing.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")

    tabling = modes.add_parser("table", help="rows as a page")
    tabling.set_defaults(do=table)
    tabling.add_argument("rows", type=Path, metavar="ROWS.jsonl")
    tabling.add_argument("--into", type=Path, metavar="PAGE.md", help="put it between the page's marks")
    tabling.add_argument(
        "--section", default="allow", help="NAME of <!-- begin NAME --> and <!-- end NAME -->"
    )
    tabling.add_argument("--data", type=Path, help="a file for the rows without their bulky fields")
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", type=Path, nargs="+", metavar="TASKS.jsonl")
    parser.add_argument("--out", type=Path, required=True, metavar="ROWS.jsonl")
    parser.add_argument(
        "--runs", type=Path, metavar="FOLDER", help="of runs and kernels; ROWS, less its ending"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ids", default="", help="of the tasks, as in 1/3,2/7")
    parser.add_argument("--seconds", type=float, help="begin no task later than that")
    parser.add_argument("--task-seconds", type=float, default=900.0, help="after which a task is given up")
    parser.add_argument("--retry", action="store_true", help="again those that a fault cut short")


if __name__ == "__main__":
    sys.exit(main())
