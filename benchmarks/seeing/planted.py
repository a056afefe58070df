"""Profile and diagnose every planted kernel: is the planted limiter named, with counters and without?

    PYTHONPATH=src python benchmarks/seeing/planted.py --out planted.jsonl --markdown planted.md

Each kernel is profiled once, as high as the ladder goes. The diagnosis without counters,
and by the compiler alone, is diagnosed from the same profile with those numbers taken out. Lines are
written as they come; kernels that are in the file already are not profiled again. Ends with 0 where as
many limiters were named as should be, at every rung that was reached.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

import torch
import triton
from planting import (
    HEADINGS,
    WANTED,
    WIDTHS,
    Kept,
    Planted,
    load_planted,
    read_kept,
    row,
    score,
    summary,
)
from tables import Table

from egg.core.errors import EggError
from egg.evaluator.profiling.ladder import profile
from egg.hardware.gpus import find


def main() -> int:
    options = arguments()
    wanted = load_planted(options.only)
    kept = {k.name: k for k in read_kept(options.out)}
    failed: dict[str, str] = {}
    table = Table(HEADINGS, WIDTHS)
    table.begin()
    started = time.monotonic()
    with options.out.open("a", encoding="utf-8") as out:
        for case in wanted:
            if case.name not in kept:
                if options.seconds and time.monotonic() - started > options.seconds:
                    continue
                try:
                    kept[case.name] = look(case, options)
                except EggError as error:
                    failed[case.name] = str(error)
                    print(f"{case.name}: {error}", flush=True)
                    continue
                print(kept[case.name].to_line(), file=out, flush=True)
            table.add(row(kept[case.name]))
            for lowered in kept[case.name].profile.lowered:
                print(f"    not by {lowered.rung.value}: {lowered.reason}", flush=True)
    seen = [kept[case.name] for case in wanted if case.name in kept]
    counts = score(seen)
    text = f"{len(seen)} of {len(wanted)} profiled in {time.monotonic() - started:.0f} s\n{summary(counts)}"
    print(f"\n{text}")
    if options.markdown:
        options.markdown.write_text(f"{table.markdown()}\n\n{text}\n", encoding="utf-8")
    enough = all(counts[rung][0] >= least for rung, least in WANTED.items() if counts[rung][1])
    return 0 if enough and not failed else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one profile each; resumed")
    parser.add_argument("--only", action="append", help="a folder of planted/; may be repeated")
    parser.add_argument("--no-counters", action="store_true", help="kernel times only")
    parser.add_argument(
        "--seconds", type=float, help="begin no profile after so long; run again for the rest"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--target", help="a GPU to compile for where none is to be measured")
    parser.add_argument("--markdown", type=Path, help="the table and the summary as a page")
    return parser.parse_args()


def look(case: Planted, options: argparse.Namespace) -> Kept:
    """One profile, as high as the ladder goes."""
    started = time.monotonic()
    seen = profile(
        case.task,
        case.candidate,
        device=options.device,
        target=options.target,
        precision=case.precision,
        counters=not options.no_counters,
    )
    gpu = find(seen.gpu)
    if gpu is None:
        raise SystemExit(f"{seen.gpu} is not in the table of GPUs, so nothing can be diagnosed on it")
    machine = {
        "gpu": seen.gpu,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
    return Kept(case.name, case.limiter, case.kernel, gpu.name, seen, machine, time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
