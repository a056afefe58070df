"""Whole models end to end: eager, the modes of torch.compile and the backend egg, on the same calls.

``python -m benchmarks.models --out FOLDER`` works in steps (``--steps``), each for all models:

- ``tune`` records the graphs of every model and tunes the heaviest, several models at a time, within
  ``--seconds`` where that is given: a graph that is not done by then is rejected, and says so;
- ``measure`` compiles all forms of some models at a time, and times one model after another, while no other
  process of this program compiles or runs anything: a lock is shared by those that compile, and held alone
  by the one that is timed (``--workers`` models are in memory at a time);
- ``start`` takes the time to the first answer in new processes, Inductor's and egg's side by side, with empty
  caches and with full ones, once the store has its verdicts (not done unless named).

Rows go to ``FOLDER/tune.jsonl``, ``models.jsonl`` and ``start.jsonl`` as they come. What failed is a row with
the reason, and is done again by the next start of this program; what succeeded is not.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.models.table import OPPONENTS, table
from benchmarks.models.zoo import MODELS

Row = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """What is asked for, and the folder."""

    out: Path
    models: tuple[str, ...]
    budget: str
    limit: int
    workers: int
    scale: int
    forms: str
    seconds: float = 0.0
    """To tune the graphs of a model in, without a limit if 0."""

    def store(self, name: str) -> str:
        return str(self.out / "stores" / name)

    def step(self, step: str, file: str, work: Callable[[Sequence[str]], Iterator[Row]]) -> None:
        """Do a step for the models that have no row of it yet, and append the rows."""
        path = self.out / file
        done = {row["model"] for row in read(path) if "error_text" not in row}
        began = monotonic()
        for row in work([name for name in self.models if name not in done]):
            with path.open("a") as rows:
                rows.write(json.dumps(row) + "\n")
            outcome = row.get("error_text") or "done"
            print(
                f"{monotonic() - began:6.0f} s  {step} {row['model']}: {outcome} {row['seconds']}", flush=True
            )

    # -- steps -------------------------------------------------------------------------------------

    def tune(self, names: Sequence[str]) -> Iterator[Row]:
        with ThreadPoolExecutor(self.workers) as pool:
            asked = [pool.submit(self._tuned, name) for name in names]
            for answer in as_completed(asked):
                yield answer.result()

    def _tuned(self, name: str) -> Row:
        record = ("record", name, self.store(name), "--scale", str(self.scale))
        how = ("--budget", self.budget, "--limit", str(self.limit), "--seconds", str(self.seconds))
        tune = ("tune", name, self.store(name), *how)
        row: Row = {"model": name, "seconds": {}}
        for arguments in (record, tune):
            row = merged(row, ended(name, arguments[0], started(arguments), monotonic()))
            if "error_text" in row:
                break
        return row

    def measure(self, names: Sequence[str]) -> Iterator[Row]:
        """In groups: the processes of a group compile at the same time, then each is timed alone."""
        for first in range(0, len(names), self.workers):
            began, group = monotonic(), names[first : first + self.workers]
            running = [(name, self._measuring(name)) for name in group]
            with ThreadPoolExecutor(self.workers) as pool:
                asked = [pool.submit(ended, name, "measure", process, began) for name, process in running]
                for answer in as_completed(asked):
                    yield answer.result()

    def _measuring(self, name: str) -> subprocess.Popen[str]:
        """The process holds the lock with others from its beginning, so none is timed while it compiles."""
        with (self.out / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            place = ("--scale", str(self.scale), "--lock", str(lock.fileno()))
            arguments = ("measure", name, self.store(name), "--forms", self.forms, *place)
            return started(arguments, inherited=[lock.fileno()])

    def start(self, names: Sequence[str]) -> Iterator[Row]:
        for name in names:
            row: Row = {"model": name, "seconds": {}}
            for caches in ("cold", "warm"):
                began = monotonic()
                running = {form: self._starting(name, form) for form in ("compile", "egg")}
                for form, process in running.items():
                    found = ended(name, f"{caches} {form}", process, began)
                    row = merged(row, {f"{caches} {form}": found.pop("first_answer_seconds", None)} | found)
            yield row

    def _starting(self, name: str, form: str) -> subprocess.Popen[str]:
        """Each form has caches of its own, in the same state."""
        caches = self.out / "caches" / name / form
        places = {
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }
        arguments = (name, self.store(name), form, "--scale", str(self.scale))
        return started(arguments, "benchmarks.models.start", environ={**os.environ, **places})


def started(
    arguments: Sequence[str],
    module: str = "benchmarks.models.one",
    inherited: Sequence[int] = (),
    environ: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, pass_fds=inherited, env=environ)


def ended(name: str, step: str, process: subprocess.Popen[str], began: float) -> Row:
    """The row that a process printed, or why it has none."""
    output, errors = process.communicate()
    seconds = {step: round(monotonic() - began, 1)}
    if process.returncode:
        return {"model": name, "error_text": f"{step} failed: {(output + errors)[-500:]}", "seconds": seconds}
    return merged({"model": name, "seconds": seconds}, json.loads(output.splitlines()[-1]))


def merged(row: Row, more: Row) -> Row:
    return {**row, **more, "seconds": {**row["seconds"], **more.get("seconds", {})}}


def read(rows: Path) -> list[Row]:
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", default="tune,measure", help="tune, measure, start")
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--limit", type=int, default=4, help="graphs of a model that are tuned")
    parser.add_argument("--workers", type=int, default=4, help="models at a time")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="to tune a model in, 0: without a limit")
    parser.add_argument("--forms", default=",".join((*OPPONENTS, "egg")))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    models = tuple(given.models.split(","))
    how = (given.budget, given.limit, given.workers, given.scale, given.forms, given.seconds)
    bench = Bench(given.out, models, *how)
    files = {"tune": "tune.jsonl", "measure": "models.jsonl", "start": "start.jsonl"}
    for step in given.steps.split(","):
        bench.step(step, files[step], getattr(bench, step))
    print(table(*(read(given.out / file) for file in files.values())))


if __name__ == "__main__":
    main()
