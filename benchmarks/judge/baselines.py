"""Measure PyTorch's own baselines with the judge's stopwatch, and compare them with known times.

    PYTHONPATH=src python benchmarks/judge/baselines.py --tasks level1.jsonl level2.jsonl \\
        --csv h200_torch_baselines.csv --count 30 --seconds 240 --out baselines.json

The tasks are KernelBench lines ``{level, problem_id, name, code}``; the CSV has the columns level,
problem_id, eager, eager_tf32, compile, compile_tf32 (milliseconds). Tasks are chosen in turn from every
family of operations at every level, so that whatever fits into ``--seconds`` is spread evenly. With
``--device cpu`` the tasks are rescaled and only eager is timed: a rehearsal, whose ratios mean nothing.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from table import Table

from egg.core.errors import EggError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.process.machine import choose_device
from egg.evaluator.task.program import Program, map_tensors
from egg.evaluator.task.rescale import CannotRescale, rescale
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.timing.opponents import DEFAULT, Opponent, Opponents

COLUMNS = {
    "eager": f"eager {DEFAULT}",
    "compile": f"compile {DEFAULT}",
    "eager_tf32": "eager",
    "compile_tf32": "compile",
}
"""Columns of the CSV, and what the judge calls them under a TF32 policy."""
WITHIN = 0.10
SHORTEST, LONGEST = 0.05, 50.0
ROUNDS, ROUND_MILLISECONDS = 6, 20.0
MAX_REPEATS, MIN_REPEATS = 40, 3
SEED = 42
FAMILIES = (
    ("conv3d", ("conv3d", "convtranspose3d", "_3d")),
    ("transposed", ("conv_transposed", "convtranspose")),
    ("depthwise", ("depthwise", "pointwise")),
    ("convolution", ("conv",)),
    ("product", ("matmul", "matrix", "gemm", "bmm")),
    ("attention", ("attention",)),
    ("pooling", ("pooling",)),
    ("scan", ("cumsum", "cumprod")),
    ("norm", ("norm",)),
    ("softmax", ("softmax",)),
    ("loss", ("loss",)),
    ("reduction", ("reduction", "arg")),
)


@dataclass(frozen=True)
class Known:
    """A task with the times it is known to take."""

    task: Task
    times: dict[str, float]

    @property
    def label(self) -> str:
        return f"L{self.task.level}/{self.task.name}"

    @property
    def family(self) -> str:
        name = self.task.name.lower()
        return next((f for f, words in FAMILIES if any(w in name for w in words)), "pointwise")


def main() -> int:
    options = arguments()
    device = choose_device(options.device)
    chosen = choose(load(options.tasks, options.csv), options.count)
    print(f"{len(chosen)} tasks on {describe(device)}", flush=True)
    columns = {name: COLUMNS[name] for name in options.columns}
    table = Table(("task", *columns, "s"), (44, *(22 for _ in columns), 6))
    table.begin()
    deadline = time.monotonic() + options.seconds
    done: list[dict[str, Any]] = []
    for known in chosen:
        usual = median(row["seconds"] for row in done) if done else 0.0
        if time.monotonic() + usual > deadline:
            print(f"stopped after {len(done)} tasks: --seconds {options.seconds:.0f} is used up", flush=True)
            break
        started = time.monotonic()
        found, notes = measure(known.task, device, columns)
        seconds = time.monotonic() - started
        row = {"task": known.label, "family": known.family, "known": known.times, "measured": found}
        done.append(row | {"seconds": seconds, "notes": notes})
        table.add(known.label, *(cell(found.get(c), known.times[c]) for c in columns), f"{seconds:.1f}")
        for note in notes:
            print(f"    {note}", flush=True)
        if options.out:
            write(options.out, device, done)
    text = summary(done)
    print(f"\n{text}")
    if options.markdown:
        options.markdown.write_text(f"{table.markdown()}\n\n{text}\n", encoding="utf-8")
    return 0 if done else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=Path, nargs="+", required=True, help="JSON lines of tasks")
    parser.add_argument("--csv", type=Path, required=True, help="known times")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--columns", nargs="+", choices=list(COLUMNS), default=list(COLUMNS))
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no task beyond this")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


# which tasks


def load(task_files: list[Path], times: Path) -> list[Known]:
    with times.open(encoding="utf-8", newline="") as file:
        known = {(int(r["level"]), int(r["problem_id"])): r for r in csv.DictReader(file)}
    found = []
    for path in task_files:
        for line in path.read_text(encoding="utf-8").splitlines():
            task = Task.from_json_line(line)
            row = known.get((task.level or 0, task.problem_id or 0))
            if row is not None:
                found.append(Known(task, {c: float(row[c]) if row[c] else math.nan for c in COLUMNS}))
    return found


def choose(known: list[Known], count: int) -> list[Known]:
    """The levels take turns, and within a level the families do; a fixed shuffle decides within a family."""
    generator = random.Random(SEED)
    groups: dict[int, dict[str, list[Known]]] = defaultdict(lambda: defaultdict(list))
    for item in known:
        if SHORTEST <= item.times["eager"] <= LONGEST:
            groups[item.task.level or 0][item.family].append(item)
    queues = []
    for _, families in sorted(groups.items()):
        for members in families.values():
            generator.shuffle(members)
        queues.append(interleaved([families[name] for name in sorted(families)]))
    return interleaved(queues)[:count]


def interleaved(lists: list[list[Known]]) -> list[Known]:
    """One of each in turn, until all are used up."""
    return [item for turn in itertools.zip_longest(*lists) for item in turn if item is not None]


# measuring


def measure(task: Task, device: torch.device, columns: dict[str, str]) -> tuple[dict[str, float], list[str]]:
    """Milliseconds by column; what could not be measured is missing, and the notes say why."""
    notes: list[str] = []
    try:
        with Program.load(task if device.type == "cuda" else small(task)) as program:
            by_name = _contest(program, device, columns, notes)
    except (EggError, CannotRescale, torch.OutOfMemoryError) as error:
        return {}, [*notes, str(error).splitlines()[0][:200]]
    finally:
        _forget(device)
    return {column: by_name[name] for column, name in columns.items() if name in by_name}, notes


def _contest(
    program: Program, device: torch.device, columns: dict[str, str], notes: list[str]
) -> dict[str, float]:
    """Median of interleaved rounds for each opponent, as the timing gate measures them."""
    sets = list(_input_sets(program, device))
    if device.type == "cuda":
        opponents = Opponents(program, Precision.TF32, device)
        ready = opponents.get(tuple(columns.values()), sets[0])
        notes += [f"{name}: {reason[:200]}" for name, reason in opponents.failed.items()]
    else:
        module = program.build(BUILD_SEED, device, Precision.TF32)
        ready = [
            Opponent(COLUMNS["eager"], module, Precision.MATCH),
            Opponent("eager", module, Precision.TF32),
        ]
    if not ready:
        return {}
    rounds: dict[str, list[float]] = {o.name: [] for o in ready}
    probe = median(_time(ready[0], sets, 5, device))
    repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(ROUND_MILLISECONDS / max(probe, 1e-3))))
    for _ in range(ROUNDS):
        for opponent in random.sample(ready, len(ready)):
            rounds[opponent.name].append(median(_time(opponent, sets, repeats, device)))
    return {name: median(values) for name, values in rounds.items()}


def _input_sets(program: Program, device: torch.device) -> Iterator[list[Any]]:
    """Two sets to rotate, or one where two would not fit comfortably."""
    first = program.inputs(SEED, device, Precision.TF32)
    yield first
    size = 0

    def weigh(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal size
        size += tensor.numel() * tensor.element_size()
        return tensor

    map_tensors(first, weigh)
    if device.type == "cpu" or size < torch.cuda.mem_get_info(device)[0] // 8:
        yield program.inputs(SEED + 1, device, Precision.TF32)


def _time(opponent: Opponent, sets: list[list[Any]], repeats: int, device: torch.device) -> list[float]:
    if device.type == "cuda":
        return opponent.time(sets, repeats, device)
    times = []
    with opponent.scope():
        for index in range(min(repeats, MIN_REPEATS)):
            started = time.perf_counter()
            opponent.call(*sets[index % len(sets)])
            times.append((time.perf_counter() - started) * 1e3)
    return times


def small(task: Task) -> Task:
    return rescale(task, max_flops=1e7, max_elements=100_000).task


def _forget(device: torch.device) -> None:
    torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()


# telling


def describe(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU (a rehearsal)"
    return f"{name}, torch {torch.__version__}"


def cell(measured: float | None, known: float) -> str:
    """``2.71 / 2.78 = 0.97``: measured over known."""
    if measured is None or not math.isfinite(known):
        return "-"
    mark = "" if abs(measured / known - 1) <= WITHIN else " !"
    return f"{measured:.3f}/{known:.3f}={measured / known:.2f}{mark}"


def write(path: Path, device: torch.device, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"machine": describe(device), "rows": rows}, indent=1), encoding="utf-8")


def summary(rows: list[dict[str, Any]]) -> str:
    lines = [f"{len(rows)} tasks; measured over known, and how many within {WITHIN:.0%}:"]
    for column in COLUMNS:
        ratios = [
            row["measured"][column] / row["known"][column]
            for row in rows
            if column in row["measured"] and math.isfinite(row["known"][column])
        ]
        if ratios:
            near = sum(abs(r - 1) <= WITHIN for r in ratios)
            lines.append(
                f"  {column:13s} {near:2d} of {len(ratios)}, geometric mean {geometric_mean(ratios):.3f}, "
                f"median {median(ratios):.3f}, from {min(ratios):.2f} to {max(ratios):.2f}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
