"""Diagnose kept profiles again, on any machine: after a threshold was changed, or to see one kernel whole.

    PYTHONPATH=src python benchmarks/seeing/rediagnose.py planted.jsonl
    PYTHONPATH=src python benchmarks/seeing/rediagnose.py planted.jsonl --only tail_wave --whole

Ends with 0 where as many limiters were named as should be, at every rung that the profiles reach.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planting import (
    HEADINGS,
    SEEN,
    WANTED,
    WIDTHS,
    Kept,
    about,
    diagnosed,
    gpu_of,
    read_kept,
    row,
    score,
    summary,
)
from tables import Table


def main() -> int:
    options = arguments()
    kept = [
        k for path in options.files for k in read_kept(path) if not options.only or k.name in options.only
    ]
    if not kept:
        raise SystemExit(f"no such profile in {', '.join(map(str, options.files))}")
    table = Table(HEADINGS, WIDTHS)
    table.begin()
    for one in kept:
        table.add(row(one))
        if options.whole:
            print(in_full(one))
    counts = score(kept)
    print(f"\n{summary(counts)}")
    if options.markdown:
        options.markdown.write_text(f"{table.markdown()}\n\n{summary(counts)}\n", encoding="utf-8")
    return 0 if all(counts[r][0] >= least for r, least in WANTED.items() if counts[r][1]) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="what planted.py wrote")
    parser.add_argument("--only", action="append", help="a kernel's name; may be repeated")
    parser.add_argument("--whole", action="store_true", help="all evidence, suspects and counters")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def in_full(kept: Kept) -> str:
    """Everything that is known of one planted kernel."""
    lines = []
    by_rung = diagnosed(kept.profile, gpu_of(kept))
    for rung in (r for r in SEEN if r in by_rung):
        found = about(by_rung[rung], kept.kernel)
        if found is None:
            lines.append(f"    {rung.value}: no kernel {kept.kernel!r}")
            continue
        lines.append(
            f"    {rung.value}: {found.limiter.value}, {found.gain:.2f}x without it; unless {found.unless}"
        )
        lines += [f"        {e.name} = {e.value:.5g} {e.unit}: {e.says}" for e in found.evidence]
        lines += [f"        or {s.limiter.value} {s.gain:.2f}x" for s in found.suspects]
    for kernel in kept.profile.kernels:
        ms = "-" if kernel.milliseconds is None else f"{kernel.milliseconds:.4f}"
        predicted = "-" if kernel.predicted_milliseconds is None else f"{kernel.predicted_milliseconds:.4f}"
        lines.append(f"    {kernel.name}: {ms} ms, predicted {predicted} ms, {kernel.launches} launches")
        lines += [f"        {name} = {value:.6g}" for name, value in sorted(kernel.counters.items())]
        if kernel.resources is not None:
            lines.append(f"        {kernel.resources}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
