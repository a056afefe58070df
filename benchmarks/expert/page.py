"""Rows as a page: totals by level, what was lost and why, and every task."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence

from record import ACCEPTED
from rows import MACHINE, Row, gains_of, key_of_row, kinds_of
from tasks import told

from egg.core.errors import UsageError

BASELINES = ("eager", "compile", "reduce-overhead")
COMPILED = "compiled"
AUDITED = "audited"
MOST_KINDS = 3
"""Kinds of kernels that a task's line names."""

Cells = Sequence[str]
TIMED = re.compile(r"(?P<stage>\w+): (?P<decision>.+) (?P<ratio>[\d.]+)x")
"""A step as a kept row tells it, where something was timed."""


def page(rows: Sequence[Row]) -> str:
    """The Markdown of judged rows, of audited or of compiled ones."""
    if any(AUDITED in row for row in rows):
        parts = [_audited(rows)]
    elif any(row["verdict"] == COMPILED for row in rows):
        parts = [_compiled_totals(rows), "### Every task", _compiled_table(rows)]
    else:
        parts = [
            _terms(rows),
            _totals(rows),
            "### Not accepted",
            _refused(rows),
            _broken_off(rows),
            _gained(rows),
            "### Not faster than the best baseline",
            _losses(rows),
            "### Every task",
            _table(rows),
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


# -- figures -----------------------------------------------------------------------------------------


def accepted(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] == ACCEPTED]


def speedup(row: Row, baseline: str) -> float | None:
    """The median; ``best`` is the fastest baseline there is."""
    found = {name: timed["speedup"][0] for name, timed in row.get("baselines", {}).items()}
    if baseline == "best":
        return min(found.values(), default=None)
    return found.get(baseline)


def geomean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


# -- judged rows -------------------------------------------------------------------------------------


def _terms(rows: Sequence[Row]) -> str:
    """What all rows share, in a sentence; more than one of anything is worth seeing too."""
    policies = _different(
        rows,
        lambda r: ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in r.get("policy", {}).items()
        ),
    )
    versions = _different(
        rows, lambda r: ", ".join(f"{name} {value}" for name, value in r.get("versions", {}).items() if value)
    )
    budgets = _different(rows, lambda r: r.get("budget", ""))
    return f"Policy: {policies}. Budget: {budgets}. Machine: {versions}."


def _different(rows: Sequence[Row], told_of: Callable[[Row], str]) -> str:
    return "; ".join(dict.fromkeys(text for row in rows if (text := told_of(row)))) or "-"


def _totals(rows: Sequence[Row]) -> str:
    levels = sorted({row["level"] for row in rows})
    groups = [(f"level {level}", [row for row in rows if row["level"] == level]) for level in levels]
    if len(groups) > 1:
        groups.append(("all", list(rows)))
    headings = ("", "tasks", "accepted", "faster than all", *(f"vs {name}" for name in BASELINES), "vs best",
                "own kernels only", "median s", "less the last judging", "slowest s")  # fmt: skip
    return markdown(headings, [(name, *_total(part)) for name, part in groups])


def _total(rows: Sequence[Row]) -> Cells:
    """Speedups are geometric means over the accepted; seconds are over all."""
    good = accepted(rows)
    seconds = [row["seconds"]["all"] for row in rows if "seconds" in row]
    searching = [row["seconds"]["all"] - row["seconds"].get("final", 0.0) for row in rows if "seconds" in row]
    means = [geomean(speedup(row, name) for row in good) for name in (*BASELINES, "best")]
    return (
        str(len(rows)),
        str(len(good)),
        str(sum(bool(row.get("faster")) for row in good)),
        *(_times(mean) for mean in means),
        str(sum(not row["library_ops"] for row in good)),
        f"{statistics.median(seconds):.1f}" if seconds else "-",
        f"{statistics.median(searching):.1f}" if searching else "-",
        f"{max(seconds):.0f}" if seconds else "-",
    )


def _refused(rows: Sequence[Row]) -> str:
    bad = [row for row in rows if row["verdict"] != ACCEPTED]
    if not bad:
        return "None."
    return markdown(
        ("task", "verdict", "what was tried"),
        [(_name(row), row["verdict"], "; ".join(_tried(row)) or "-") for row in bad],
    )


def _tried(row: Row) -> list[str]:
    return row.get("refused") or [a["refused"] for a in row.get("attempts", []) if a["refused"]]


def _broken_off(rows: Sequence[Row]) -> str:
    """Searches that a fault ended before their time, with a kernel that stands."""
    broken = [row for row in accepted(rows) if row.get("trouble")]
    if not broken:
        return ""
    lines = [(_name(row), row["trouble"]) for row in broken]
    return "\n\n".join(["### Accepted, though the search broke off", markdown(("task", "why"), lines)])


def _gained(rows: Sequence[Row]) -> str:
    """Kernels that took the place of the one before, the largest gain first; how many tasks tried any."""
    timed = [(row, [found for text in gains_of(row) if (found := TIMED.fullmatch(text))]) for row in rows]
    kept = [(row, step) for row, steps in timed for step in steps if step["decision"] == "promoted"]
    if not kept:
        return ""
    kept.sort(key=lambda one: -float(one[1]["ratio"]))
    lines = [(_name(row), step["stage"], _times(float(step["ratio"]))) for row, step in kept]
    many = sum(bool(steps) for _, steps in timed)
    heading = f"Of {many} tasks where something was timed beside the first kernel:"
    table = markdown(("task", "stage", "against the kernel before"), lines)
    return "\n\n".join(["### Made faster by what was tried", heading, table])


def _losses(rows: Sequence[Row]) -> str:
    """Accepted, but not beyond the noise faster than every baseline; the furthest behind first."""
    lost = [row for row in accepted(rows) if row.get("faster") is False]
    if not lost:
        return "None." if any("faster" in row for row in rows) else "Nothing was measured."
    lost.sort(key=lambda row: speedup(row, "best") or 0.0)
    return markdown(
        ("task", "ms", "best baseline", "vs best", "times its floor", "diagnosis"),
        [
            (
                _name(row),
                _ms(row["ms"]),
                _best_baseline(row),
                _times(speedup(row, "best")),
                _headroom(row),
                row["diagnosis"],
            )
            for row in lost
        ],
    )


def _best_baseline(row: Row) -> str:
    found = row.get("baselines", {})
    return min(found, key=lambda name: found[name]["speedup"][0]) if found else "-"


def _headroom(row: Row) -> str:
    return f"{row['ms'][0] / row['floor_ms']:.2f}" if row.get("floor_ms") and row.get("ms") else "-"


def _table(rows: Sequence[Row]) -> str:
    headings = ("task", "verdict", "own", "ms", *(f"vs {name}" for name in BASELINES), "noise", "faster",
                "predicted ms", "floor ms", "launches", "structure", "s")  # fmt: skip
    return markdown(headings, [_cells(row) for row in rows])


def _cells(row: Row) -> Cells:
    baselines, own, noise = row.get("baselines", {}), row.get("own_share"), row.get("noise")
    return (
        _name(row),
        row["verdict"] if not row["verdict"].startswith(MACHINE) else "machine",
        "-" if own is None else f"{own:.0%}",
        _ms(row.get("ms")),
        *(_with_interval(baselines[n]["speedup"]) if n in baselines else "-" for n in BASELINES),
        "-" if noise is None else f"{noise:.1%}",
        {True: "yes", False: "no", None: "-"}[row.get("faster")],
        _ms([row.get("predicted_ms")]),
        _ms([row.get("floor_ms")]),
        str(row.get("launches", "-")),
        _structure(row),
        f"{row.get('seconds', {}).get('all', 0.0):.1f}",
    )


def _structure(row: Row) -> str:
    """What the kernels do, the longest list cut short, and the moves and repairs that led there."""
    kinds = kinds_of(row)
    more = [f"{len(kinds) - MOST_KINDS} more"] if len(kinds) > MOST_KINDS else []
    structure = row.get("structure") or {}
    moves = [*structure.get("moves", ()), *structure.get("repairs", ())]
    return "; ".join([*kinds[:MOST_KINDS], *more]) + (f" [{'; '.join(moves)}]" if moves else "")


# -- compiled rows -----------------------------------------------------------------------------------


def _compiled_totals(rows: Sequence[Row]) -> str:
    lines = []
    for level in sorted({row["level"] for row in rows}):
        part = [row for row in rows if row["level"] == level]
        good = [row for row in part if row["verdict"] == COMPILED]
        spilling = sum(any(kernel["spill_bytes"] for kernel in row["compiled"]) for row in good)
        seconds = statistics.median(row["seconds"]["all"] for row in part)
        lines.append((f"level {level}", str(len(part)), str(len(good)), str(spilling), f"{seconds:.1f}"))
    return markdown(("", "tasks", "compiled", "with a kernel that spills", "median s"), lines)


def _compiled_table(rows: Sequence[Row]) -> str:
    headings = ("task", "verdict", "launches", "most registers", "spilled bytes", "most shared bytes",
                "predicted ms", "floor ms", "left to PyTorch", "s")  # fmt: skip
    return markdown(headings, [_compiled_cells(row) for row in rows])


def _compiled_cells(row: Row) -> Cells:
    kernels = row.get("compiled", [])
    largest = [
        str(max((k[n] for k in kernels), default="-")) for n in ("registers", "spill_bytes", "shared_bytes")
    ]
    return (
        _name(row),
        row["verdict"],
        str(row.get("launches", "-")),
        *largest,
        _ms([row.get("predicted_ms")]),
        _ms([row.get("floor_ms")]),
        ", ".join(row.get("library_ops", ())) or "-",
        f"{row['seconds']['all']:.1f}",
    )


# -- audited rows ------------------------------------------------------------------------------------


def _audited(rows: Sequence[Row]) -> str:
    total = f"{len(accepted(rows))} of {len(rows)} that had been accepted stood an audit."
    headings = ("task", "verdict", "answers checked", "gates passed", "s")
    lines = (
        (
            _name(row),
            " ".join(part for part in (row["verdict"], row.get("reason", "")) if part),
            str(row.get("checks", "-")),
            ", ".join(gate for gate, passed in row.get("gates", {}).items() if passed) or "-",
            f"{row.get('seconds', {}).get('all', 0.0):.1f}",
        )
        for row in rows
    )
    return f"{total}\n\n{markdown(headings, lines)}"


# -- cells -------------------------------------------------------------------------------------------


def _name(row: Row) -> str:
    return f"{told(key_of_row(row))} {row['name'].partition('_')[2] or row['name']}"


def _ms(found: Sequence[float | None] | None) -> str:
    return f"{found[0]:.4g}" if found and found[0] is not None else "-"


def _times(value: float | None) -> str:
    return f"{value:.2f}x" if value is not None else "-"


def _with_interval(found: Sequence[float]) -> str:
    median, low, high = found
    return f"{median:.2f} ({low:.2f} to {high:.2f})"
