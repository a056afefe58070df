"""The KernelBench page: a view of bench rows, as Markdown.

    python benchmarks/kernelbench/page.py kb/rows.jsonl --into docs/evidence/expert.md --section allow

Totals by level, what was refused or slower and why, and every task. Rows that no GPU measured become a table
of the compiler's figures; rows at level ``audit`` become one of what was checked. The rows are those of
``egg bench``, or evidence that an older version kept.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from egg.bench.row_files import read_rows
from egg.bench.rows import BEST, TROUBLE, NoKernel, Passed, Refused, Row, Unable
from egg.core.codec import to_json
from egg.core.errors import EggError, UsageError
from egg.core.evaluation import Interval
from egg.core.policy import Host, Level

BASELINES = ("eager", "compile", "reduce-overhead")
MOST_KINDS = 3
"""Kinds of kernels that a task's line names."""

Cells = Sequence[str]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path, metavar="ROWS.jsonl")
    parser.add_argument("--into", type=Path, metavar="PAGE.md", help="put it between the page's marks")
    parser.add_argument(
        "--section", default="allow", help="NAME of <!-- begin NAME --> and <!-- end NAME -->"
    )
    options = parser.parse_args(arguments)
    try:
        text = page(read_rows(options.rows))
        if options.into is None:
            print(text, end="")
        else:
            filled_page = filled(options.into.read_text(encoding="utf-8"), options.section, text)
            options.into.write_text(filled_page, encoding="utf-8")
    except EggError as error:
        print(f"{error.message}\n  {error.hint}", file=sys.stderr)
        return 2
    return 0


def page(rows: Sequence[Row]) -> str:
    """The Markdown of measured rows, of audited or of compiled ones."""
    if not rows:
        raise UsageError("no rows", "name the rows.jsonl of a bench")
    ordered = sorted(rows, key=_place)
    if any(row.policy.level is Level.AUDIT for row in rows):
        parts = [_audited(ordered)]
    elif not any(row.timing for row in rows):
        parts = [_compiled_totals(ordered), "### Every task", _compiled_table(ordered)]
    else:
        parts = [
            _terms(ordered),
            _totals(ordered),
            "### Not accepted",
            _refused(ordered),
            _broken_off(ordered),
            _gained(ordered),
            "### Not faster than the best baseline",
            _losses(ordered),
            "### Every task",
            _table(ordered),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def filled(text: str, section: str, found: str) -> str:
    """``text`` with ``found`` between the marks of the section, in the place of what was there."""
    begin, end = f"<!-- begin {section} -->", f"<!-- end {section} -->"
    before, marked, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (marked and closed):
        raise UsageError(f"the page has no section {section!r}", f"it needs {begin} and {end}")
    return f"{before}{begin}\n\n{found}\n{end}{after}"


def markdown(headings: Cells, lines: Iterable[Cells]) -> str:
    written = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in written)


def _place(row: Row) -> tuple[int, int, str]:
    return (row.level or 0, row.problem or 0, row.key)


# -- figures -----------------------------------------------------------------------------------------


def accepted(rows: Iterable[Row]) -> list[tuple[Row, Passed]]:
    return [(row, row.verdict) for row in rows if isinstance(row.verdict, Passed)]


def speedup(row: Row, baseline: str) -> float | None:
    """The median; ``best`` is the fastest baseline there is."""
    found = row.speedup(baseline)
    return found.median if found is not None else None


def geomean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def own_share(verdict: Passed) -> float | None:
    """Of GPU time in own kernels: all of it where no library operation ran."""
    return verdict.own_share if verdict.library_ops else 1.0


# -- measured rows -----------------------------------------------------------------------------------


def _policy(row: Row) -> str:
    """The terms of an evaluation; that the file's own host code calls its kernels goes without saying."""
    terms = to_json(row.policy).items()
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in terms if value != Host.AUTHOR)


def _terms(rows: Sequence[Row]) -> str:
    """What all rows share, in a sentence; more than one of anything is worth seeing too."""
    policies = _different(rows, _policy)
    versions = _different(rows, lambda r: ", ".join(f"{n} {v}" for n, v in r.versions.items() if v))
    budgets = _different(rows, lambda r: r.settings.get("budget", ""))
    return f"Policy: {policies}. Budget: {budgets}. Machine: {versions}."


def _different(rows: Sequence[Row], text_of: Callable[[Row], str]) -> str:
    return "; ".join(dict.fromkeys(text for row in rows if (text := text_of(row)))) or "-"


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """By level; tasks without one are one group."""
    levels = sorted({row.level for row in rows}, key=lambda level: (level is None, level or 0))
    return [
        (f"level {level}" if level is not None else "no level", [row for row in rows if row.level == level])
        for level in levels
    ]


def _totals(rows: Sequence[Row]) -> str:
    groups = _groups(rows)
    if len(groups) > 1:
        groups.append(("all", list(rows)))
    headings = ("", "tasks", "accepted", "faster than all", *(f"vs {name}" for name in BASELINES), "vs best",
                "own kernels only", "median s", "less the last judging", "slowest s")  # fmt: skip
    return markdown(headings, [(name, *_total(part)) for name, part in groups])


def _total(rows: Sequence[Row]) -> Cells:
    """Speedups are geometric means over the accepted; seconds are over all."""
    good = accepted(rows)
    seconds = [row.spent.wall_seconds for row in rows]
    searching = [row.spent.wall_seconds - row.spent.final_seconds for row in rows]
    means = [geomean(speedup(row, name) for row, _ in good) for name in (*BASELINES, BEST)]
    return (
        str(len(rows)),
        str(len(good)),
        str(sum(bool(row.faster_than_all()) for row, _ in good)),
        *(_times(mean) for mean in means),
        str(sum(not verdict.library_ops for _, verdict in good)),
        f"{statistics.median(seconds):.1f}",
        f"{statistics.median(searching):.1f}",
        f"{max(seconds):.0f}",
    )


def _refused(rows: Sequence[Row]) -> str:
    bad = [row for row in rows if not row.accepted]
    if not bad:
        return "None."
    return markdown(
        ("task", "verdict", "what was tried"),
        [(_name(row), _verdict(row), "; ".join(row.refusals) or "-") for row in bad],
    )


def _verdict(row: Row) -> str:
    match row.verdict:
        case Refused(gate=gate):
            return f"refused at {gate.value}"
        case NoKernel(reason=reason):
            return reason
        case Unable(reason=reason):
            return f"machine: {reason}"
        case Passed():
            return Passed.kind


def _broken_off(rows: Sequence[Row]) -> str:
    """Searches that a fault ended before their time, with a kernel that stands."""
    broken = [row for row, _ in accepted(rows) if TROUBLE in row.notes]
    if not broken:
        return ""
    lines = [(_name(row), str(row.notes[TROUBLE])) for row in broken]
    return "\n\n".join(["### Accepted, though the search broke off", markdown(("task", "why"), lines)])


def _gained(rows: Sequence[Row]) -> str:
    """Kernels that took the place of the one before, the largest gain first; how many tasks tried any."""
    timed = [(row, [(step, step.gain) for step in row.steps if step.gain is not None]) for row in rows]
    kept = [(row, step, gain) for row, steps in timed for step, gain in steps if step.decision == "promoted"]
    if not kept:
        return ""
    kept.sort(key=lambda one: -one[2])
    lines = [(_name(row), step.stage, _times(gain)) for row, step, gain in kept]
    many = sum(bool(steps) for _, steps in timed)
    heading = f"Of {many} tasks where something was timed beside the first kernel:"
    table = markdown(("task", "stage", "against the kernel before"), lines)
    return "\n\n".join(["### Made faster by what was tried", heading, table])


def _losses(rows: Sequence[Row]) -> str:
    """Accepted, but not beyond the noise faster than every baseline; the furthest behind first."""
    lost = [(row, verdict) for row, verdict in accepted(rows) if row.faster_than_all() is False]
    if not lost:
        return "None."
    lost.sort(key=lambda one: speedup(one[0], BEST) or 0.0)
    return markdown(
        ("task", "ms", "best baseline", "vs best", "times its floor", "diagnosis"),
        [
            (
                _name(row),
                _ms(_milliseconds(row)),
                _best_baseline(row),
                _times(speedup(row, BEST)),
                _headroom(row, verdict),
                verdict.diagnosis,
            )
            for row, verdict in lost
        ],
    )


def _best_baseline(row: Row) -> str:
    found = row.opponent(BEST)
    return found.name if found is not None else "-"


def _milliseconds(row: Row) -> float | None:
    return row.timing.milliseconds.median if row.timing is not None else None


def _headroom(row: Row, verdict: Passed) -> str:
    ms, floor = _milliseconds(row), verdict.floor_milliseconds
    return f"{ms / floor:.2f}" if ms is not None and floor else "-"


def _table(rows: Sequence[Row]) -> str:
    headings = ("task", "verdict", "own", "ms", *(f"vs {name}" for name in BASELINES), "noise", "faster",
                "predicted ms", "floor ms", "launches", "structure", "s")  # fmt: skip
    return markdown(headings, [_cells(row) for row in rows])


def _cells(row: Row) -> Cells:
    verdict = row.verdict if isinstance(row.verdict, Passed) else None
    own = own_share(verdict) if verdict is not None else None
    found = [row.speedup(name) for name in BASELINES]
    return (
        _name(row),
        "machine" if isinstance(row.verdict, Unable) else _verdict(row),
        "-" if own is None else f"{own:.0%}",
        _ms(_milliseconds(row)),
        *("-" if one is None else _with_interval(one) for one in found),
        "-" if row.timing is None else f"{row.timing.noise_floor:.1%}",
        {True: "yes", False: "no", None: "-"}[row.faster_than_all()],
        _ms(verdict.predicted_milliseconds if verdict is not None else None),
        _ms(verdict.floor_milliseconds if verdict is not None else None),
        "-" if verdict is None else str(verdict.launches),
        _structure(verdict),
        f"{row.spent.wall_seconds:.1f}",
    )


def _structure(verdict: Passed | None) -> str:
    """What the kernels do, the longest list cut short, and the moves and repairs that led there."""
    structure = verdict.structure if verdict is not None else None
    if structure is None:
        return ""
    kinds = structure.kinds
    more = [f"{len(kinds) - MOST_KINDS} more"] if len(kinds) > MOST_KINDS else []
    moves = [*structure.moves, *structure.repairs]
    return "; ".join([*kinds[:MOST_KINDS], *more]) + (f" [{'; '.join(moves)}]" if moves else "")


# -- rows of a machine without a GPU -----------------------------------------------------------------


def _compiled_totals(rows: Sequence[Row]) -> str:
    lines = []
    for name, part in _groups(rows):
        good = accepted(part)
        spilling = sum(bool(v.resources and v.resources.spill_bytes) for _, v in good)
        seconds = statistics.median(row.spent.wall_seconds for row in part)
        lines.append((name, str(len(part)), str(len(good)), str(spilling), f"{seconds:.1f}"))
    return markdown(("", "tasks", "accepted", "with a kernel that spills", "median s"), lines)


def _compiled_table(rows: Sequence[Row]) -> str:
    headings = ("task", "verdict", "launches", "most registers", "spilled bytes", "most shared bytes",
                "predicted ms", "floor ms", "left to PyTorch", "s")  # fmt: skip
    return markdown(headings, [_compiled_cells(row) for row in rows])


def _compiled_cells(row: Row) -> Cells:
    verdict = row.verdict if isinstance(row.verdict, Passed) else None
    largest = verdict.resources if verdict is not None else None
    return (
        _name(row),
        _verdict(row),
        "-" if verdict is None else str(verdict.launches),
        *(
            ("-",) * 3
            if largest is None
            else map(str, (largest.registers, largest.spill_bytes, largest.shared_bytes))
        ),
        _ms(verdict.predicted_milliseconds if verdict is not None else None),
        _ms(verdict.floor_milliseconds if verdict is not None else None),
        ", ".join(verdict.library_ops if verdict is not None else ()) or "-",
        f"{row.spent.wall_seconds:.1f}",
    )


# -- audited rows ------------------------------------------------------------------------------------


def _audited(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if isinstance(row.verdict, Passed | Refused | Unable)]
    total = f"{len(accepted(judged))} of {len(judged)} kernels stood an audit."
    headings = ("task", "verdict", "answers checked", "gates passed", "s")
    lines = (
        (
            _name(row),
            _with_reason(row),
            str(row.verdict.checks) if isinstance(row.verdict, Passed) else "-",
            ", ".join(row.verdict.gates if isinstance(row.verdict, Passed) else ()) or "-",
            f"{row.spent.wall_seconds:.1f}",
        )
        for row in judged
    )
    return f"{total}\n\n{markdown(headings, lines)}"


def _with_reason(row: Row) -> str:
    verdict = row.verdict
    if not isinstance(verdict, Refused):
        return _verdict(row)
    return f"{_verdict(row)} {verdict.reason}: {verdict.evidence}".rstrip(": ")


# -- cells -------------------------------------------------------------------------------------------


def _name(row: Row) -> str:
    number, _, rest = row.name.partition("_")
    return row.name if row.level is None else f"{row.key} {rest if number.isdigit() and rest else row.name}"


def _ms(value: float | None) -> str:
    return f"{value:.4g}" if value is not None else "-"


def _times(value: float | None) -> str:
    return f"{value:.2f}x" if value is not None else "-"


def _with_interval(found: Interval) -> str:
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
