"""The rows of :mod:`benchmarks.models` as text."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import median
from typing import Any

OPPONENTS = ("eager", "compile", "reduce-overhead", "max-autotune")
FORMS = (*OPPONENTS, "egg")
VERDICTS = ("faster", "even", "slower")
"""Than the best of PyTorch, beyond the noise."""
STARTS = ("cold compile", "cold egg", "warm compile", "warm egg")
Row = dict[str, Any]


def table(tuned: Sequence[Row], measured: Sequence[Row], started: Sequence[Row]) -> str:
    """Milliseconds of each form, the gain over the best of PyTorch and whether it is beyond the noise, both
    distances from exact results, the form that the backend chose; then the seconds to the first answer, and
    what failed."""
    rows = {row["model"]: row for row in measured if "error_text" not in row}
    lines = [
        f"{'model':20}"
        + "".join(f"{form:>16}" for form in FORMS)
        + "    gain          error  torch's  chosen"
    ]
    lines += [_line(row) for row in rows.values()]
    gains = [gain(row) for row in rows.values() if gain(row)]
    if gains:
        mean = exp(sum(map(log, gains)) / len(gains))
        lines.append(
            f"geomean {mean:.3f}x, median {median(gains):.3f}x, worst {min(gains):.3f}x of {len(gains)}"
        )
        seen = [verdict(row) for row in rows.values()]
        lines.append(", ".join(f"{seen.count(name)} {name}" for name in VERDICTS if name in seen))
    starts = {row["model"]: row for row in started if "error_text" not in row}
    if starts:
        lines.append(f"{'first answer, s':20}" + "".join(f"{name:>16}" for name in STARTS))
        lines += [f"{model:20}" + "".join(f"{row[n]:16.2f}" for n in STARTS) for model, row in starts.items()]
    last = {(row["model"], step): row for step, many in _named(tuned, measured, started) for row in many}
    lines += [f"{row['model']}: {row['error_text']}" for row in last.values() if "error_text" in row]
    return "\n".join(lines)


def gain(row: Row) -> float:
    """How many times faster than the best of PyTorch; 0 where either was not measured."""
    times = row["milliseconds"]
    best = min((times[form] for form in OPPONENTS if form in times), default=0.0)
    return best / times["egg"] if "egg" in times else 0.0


def verdict(row: Row) -> str:
    """``faster`` or ``slower`` than the best of PyTorch where three of four rounds are; otherwise ``even``.

    Where rounds are not there to be compared one by one, the middle halves of both must lie apart.
    """
    times = {form: row["milliseconds"][form] for form in OPPONENTS if form in row["milliseconds"]}
    if not times or "egg" not in row["milliseconds"] or "quartiles" not in row:
        return ""
    best = min(times, key=times.__getitem__)
    if best in row.get("gains", {}):
        low, _, high = row["gains"][best]
    else:
        (low, _, high), (own_low, _, own_high) = row["quartiles"][best], row["quartiles"]["egg"]
        low, high = low / own_high, high / own_low
    return "faster" if low > 1 else "slower" if high < 1 else "even"


def _named(*steps: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    return list(zip(("tune", "measure", "start"), steps, strict=True))


def _line(row: Row) -> str:
    times, far = row["milliseconds"], row["error"]
    shown = "".join(f"{times[form]:16.3f}" if form in times else f"{'':16}" for form in FORMS)
    torchs = max((far[form] for form in times if form != "egg"), default=0.0)
    own = far.get("egg", 0.0)
    compared = f"{gain(row):7.2f}x {verdict(row):6}"
    return f"{row['model']:20}{shown}{compared}{own:9.1e}{torchs:9.1e}  {chosen(row)}"


def chosen(row: Row) -> str:
    """What the backend says of the graph that is called most."""
    graphs = [graph for graph in row.get("graphs", ()) if graph["milliseconds"]]
    return graphs[0]["reason"].split("; ")[-1] if graphs else ""
