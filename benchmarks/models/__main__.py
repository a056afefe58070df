"""Whole models end to end: eager, the modes of torch.compile and the backend egg, on the same calls.

``python -m benchmarks.models --out FOLDER`` records the graphs of every model, tunes them with ``egg tune``
and compiles all forms, for several models at a time; a lock lets one model measure at a time, while others
compile (``--workers 1`` leaves it the machine). Rows go to ``FOLDER/models.jsonl``; a model that has a row is
not measured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import exp, log
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from benchmarks.models.zoo import MODELS

OPPONENTS = ("eager", "compile", "reduce-overhead", "max-autotune")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--limit", type=int, default=4, help="graphs of a model that are tuned")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--forms", default=",".join((*OPPONENTS, "egg")))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = given.out / "models.jsonl"
    done = {row["model"] for row in read(rows)}
    names = [name for name in given.models.split(",") if name not in done]
    with ThreadPoolExecutor(given.workers) as pool:
        asked = {pool.submit(measured, name, given): name for name in names}
        for answer in as_completed(asked):
            name, row = asked[answer], answer.result()
            print(f"{name}: {row.get('error_text', 'measured')} {row['seconds']}", flush=True)
            if "error_text" not in row:
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(read(rows)))


def store(given: argparse.Namespace, name: str) -> str:
    return str(given.out / "stores" / name)


def sized(given: argparse.Namespace) -> tuple[str, str]:
    return "--scale", str(given.scale)


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model, or what stopped it."""
    place, one = store(given, name), "benchmarks.models.one"
    lock = ("--lock", str(given.out / "lock"))
    tune = ("tune", name, place, "--budget", given.budget, "--limit", str(given.limit))
    text, seconds = "", {}
    for module, arguments in (
        (one, ("record", name, place, *sized(given))),
        (one, tune),
        (one, ("measure", name, place, *sized(given), "--forms", given.forms, *lock)),
    ):
        began = monotonic()
        code, text = run(module, *arguments)
        seconds[arguments[0]] = round(monotonic() - began, 1)
        if arguments[0] == "tune":
            print(f"{name}: {text.strip()[-400:]}", flush=True)
        if code:
            return {"error_text": f"{arguments[0]} failed: {text[-500:]}", "seconds": seconds}
    return json.loads(text.splitlines()[-1]) | {"seconds": seconds}


def run(module: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def read(rows: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of each form, the gain over the best of PyTorch, and both distances from exact results."""
    lines = [
        f"{'model':24}"
        + "".join(f"{form:>17}" for form in (*OPPONENTS, "egg"))
        + "    gain   error   torch's"
    ]
    gains = []
    for row in rows:
        times = row["milliseconds"]
        best = min(times[form] for form in OPPONENTS if form in times)
        gains.append(best / times["egg"])
        shown = "".join(
            f"{times[form]:17.3f}" if form in times else f"{'':17}" for form in (*OPPONENTS, "egg")
        )
        torchs = max(row["error"][form] for form in times if form != "egg")
        lines.append(f"{row['model']:24}{shown}{gains[-1]:7.2f}x{row['error']['egg']:9.1e}{torchs:9.1e}")
    if gains:
        mean = exp(sum(map(log, gains)) / len(gains))
        lines.append(
            f"geomean {mean:.3f}x, median {median(gains):.3f}x, worst {min(gains):.3f}x of {len(gains)}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
