"""``egg bench`` for a machine that has PyTorch and Triton and no other package.

    PYTHONPATH=src python -m egg.api.benching tasks.jsonl --out kb --budget sketch --level quick

The bench is the same, folder and rows included: ``egg report``, ``egg bench score`` and ``egg bench compare``
read it on any other machine. The team is the built-in one, which needs no model. A line is printed for every
row. Killed at any time, the same command goes on. Exit 0 when every task has a row, 1 when ``--seconds`` left
some out, 2 usage, 3 when the machine failed some, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from egg.api.benching.bench import BenchResult, default_workers, run_bench
from egg.api.benching.news import Ended, News, Opened
from egg.api.benching.options import BenchOptions
from egg.bench.rows import Passed, Refused, Row
from egg.bench.suites import load, thinned
from egg.core.errors import EggError, MachineError
from egg.core.parts import parts_named
from egg.core.policy import Level, LibraryCalls, Precision
from egg.core.settings import Caps, Settings
from egg.engine.budgets import BUDGETS, find_budget
from egg.evaluator.judge.batch import Times


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        result = _run(options)
    except EggError as error:
        print(f"{error.message}\n  {error.hint}", file=sys.stderr)
        return 3 if isinstance(error, MachineError) else 2
    if result.interrupted:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130
    return 3 if result.failed else 1 if result.missing else 0


def _run(options: argparse.Namespace) -> BenchResult:
    suite = load(options.suite, levels=options.levels, ids=options.ids)
    suite = suite if options.limit is None else thinned(suite, options.limit)
    settings = Settings(
        "expert",
        find_budget(options.budget),
        precision=Precision(options.precision),
        library_calls=LibraryCalls(options.library_calls),
        device=options.device,
        target=options.target,
        caps=Caps(minutes=options.max_minutes),
        skills=() if options.skills else None,
        without=parts_named(options.without, "expert"),
    )
    lines = _Lines()
    result = run_bench(
        suite,
        BenchOptions(settings, Level(options.level)),
        options.out,
        workers=options.workers or default_workers(options.device),
        environ=os.environ,
        retry=options.retry,
        task_seconds=options.task_minutes and options.task_minutes * 60,
        begin_seconds=options.seconds,
        on_news=lines,
    )
    print(lines.times)
    return result


class _Lines:
    """A line for every row, with how many are done."""

    def __init__(self) -> None:
        self._done = self._tasks = 0
        self.times = Times()
        """Of the rows that were made here."""

    def __call__(self, news: News) -> None:
        match news:
            case Opened(rows=rows, pending=pending):
                self._done, self._tasks = len(rows), len(rows) + len(pending)
                print(f"{self._done} of {self._tasks} tasks have a row", flush=True)
            case Ended(row=row):
                self._done += 1
                self.times.add(row.spent.gpu_seconds, row.spent.waited)
                print(f"[{self._done}/{self._tasks}] {_line(row)}", flush=True)
            case _:
                pass


def _line(row: Row) -> str:
    match row.verdict:
        case Passed(timing=timing) if timing is not None:
            speedups = ", ".join(f"{o.speedup.median:.2f}x {o.name}" for o in timing.opponents)
            outcome = f"accepted, {timing.milliseconds.median:.4g} ms, {speedups}"
        case Passed():
            outcome = "accepted, not measured"
        case Refused(gate=gate, reason=reason):
            outcome = f"refused at {gate.value}: {reason}"
        case other:
            outcome = f"{other.kind}: {other.reason[:100]}"
    waited = f", {row.spent.waited}" if row.spent.waited.total else ""
    return f"{row.key} {row.name}: {outcome}; {row.spent.wall_seconds:.1f} s{waited}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m egg.api.benching", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("suite", help="as for egg bench: llm-ops, real, a .jsonl file, a checkout")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--levels", help="as in 1-3")
    parser.add_argument("--ids", help="as in 1/3,2/7 or attention_*")
    parser.add_argument("--limit", type=int, help="so many, spread over the suite")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--target", help="the GPU to compile for, on a machine without one")
    parser.add_argument("--budget", default="standard", choices=sorted(BUDGETS))
    parser.add_argument("--level", default="full", choices=[level.value for level in Level])
    parser.add_argument("--precision", default="match", choices=[p.value for p in Precision])
    parser.add_argument("--library-calls", default="allow", choices=[calls.value for calls in LibraryCalls])
    parser.add_argument("--skills", action="store_true", help="offer the built-in skills to the team")
    parser.add_argument("--without", metavar="PART[,PART]", help="leave out, as compiled or structure,tiling")
    parser.add_argument("--max-minutes", type=float, help="after which a task's search ends")
    parser.add_argument("--task-minutes", type=float, help="after which a task is given up")
    parser.add_argument("--seconds", type=float, help="begin no task later than that")
    parser.add_argument("--retry", action="store_true", help="run again the tasks that a fault cut short")
    return parser


if __name__ == "__main__":
    sys.exit(main())
