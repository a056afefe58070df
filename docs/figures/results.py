"""The README's picture and table of results, from the rows in docs/evidence.

``python docs/figures/results.py`` writes both anew. A test does the same and compares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from egg.bench.rows import BEST, Row
from egg.bench.scores import Group, Speedups
from egg.report.bench_report import BenchReport, read_bench

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PICTURE = ROOT / "docs" / "figures" / "speedups.svg"
README = ROOT / "README.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
SUITES = (
    ("KernelBench", "expert_kernelbench.jsonl"),
    ("llm-ops", "llm_ops.jsonl"),
    ("real", "real_quick_h200.jsonl"),
)
AGAINST = ("eager", "compile", BEST)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 760, 312, 46, 46, 40, 34
LOW, HIGH = 0.25, 32.0
STYLE = """text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1d2126}
.quiet{fill:#59616c}.title{font-weight:600}.rule{stroke:#dfe2e0}.one{stroke:#1d2126}
.faster{fill:#0a5bb5}.even{fill:#757d88}.slower{fill:#b3251c}.median{stroke:#855000;stroke-dasharray:5 3}
@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.quiet{fill:#a3abb6}.rule{stroke:#2d333b}.one{stroke:#e4e7eb}
.faster{fill:#7ab8ff}.even{fill:#8b949f}.slower{fill:#ff938a}.median{stroke:#e6b450}}"""


def reports() -> list[tuple[str, BenchReport]]:
    return [(name, read_bench(EVIDENCE / file)) for name, file in SUITES]


# -- the table ---------------------------------------------------------------------------------------


def table(benches: Sequence[tuple[str, BenchReport]]) -> str:
    """Geometric mean and median over the correct kernels, by suite and level."""
    lines = [
        "| suite | level | budget | tasks | correct "
        "| over eager | over `torch.compile` | over the best of torch |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, bench in benches:
        budget = " or ".join(sorted({row.settings["budget"] for row in bench.rows}, reverse=True))
        levels = bench.scores.levels if len(bench.scores.levels) > 1 else ()
        for label, group in [*((level.name.split()[-1], level) for level in levels), ("all", bench.overall)]:
            cells = [_cell(group, opponent) for opponent in AGAINST]
            counts = f"{group.tasks} | {group.correct.count}"
            lines.append(f"| {name} | {label} | {budget} | {counts} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(group: Group, opponent: str) -> str:
    found: Speedups | None = group.against(opponent)
    assert found is not None
    assert found.geomean is not None
    assert found.median is not None
    return f"{found.geomean.value:.2f}x, {found.median.value:.2f}x"


# -- the picture -------------------------------------------------------------------------------------


def picture(benches: Sequence[tuple[str, BenchReport]]) -> str:
    """Every task as a dot: its speedup over the best of torch, sorted, on a logarithmic scale."""
    timed = [(name, _sorted(bench.rows)) for name, bench in benches]
    room = WIDTH - LEFT - 12 - GAP * (len(timed) - 1)
    total = sum(len(rows) for _, rows in timed)
    parts = [f"<style>{STYLE}</style>"]
    left = float(LEFT)
    for name, rows in timed:
        width = room * max(len(rows) / total, 0.55) / sum(max(len(r) / total, 0.55) for _, r in timed)
        parts += _panel(name, rows, left, width, ticks=left == LEFT)
        left += width + GAP
    label = "Speedup over the best of eager, torch.compile and reduce-overhead on an H200, one dot a task"
    parts.append(_text(label, LEFT, HEIGHT - 8, "quiet"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    return f'{head} aria-label="{label}">\n' + "\n".join(parts) + "\n</svg>\n"


def _panel(name: str, rows: Sequence[Row], left: float, width: float, ticks: bool) -> list[str]:
    parts = []
    for value in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        y = _height(value)
        kind = "one" if value == 1 else "rule"
        parts.append(
            f'<line class="{kind}" x1="{left:.1f}" x2="{left + width:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        if ticks:
            parts.append(_text(f"{value:g}x", left - 8, y + 4, "quiet", "end"))
    found = [_over_best(row) for row in rows]
    for index, (row, value) in enumerate(zip(rows, found, strict=True)):
        x = left + (index + 0.5) * width / len(rows)
        parts.append(f'<circle class="{_kind(row)}" cx="{x:.1f}" cy="{_height(value):.1f}" r="2.4"/>')
    median = found[len(found) // 2] if len(found) % 2 else sum(found[len(found) // 2 - 1 :][:2]) / 2
    y = _height(median)
    parts.append(f'<line class="median" x1="{left:.1f}" x2="{left + width:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    slower = sum(_kind(row) == "slower" for row in rows)
    parts.append(_text(name, left, TOP - 28, "title"))
    parts.append(_text(f"median {median:.2f}x, {slower} of {len(rows)} slower", left, TOP - 12, "quiet"))
    return parts


def _sorted(rows: Sequence[Row]) -> list[Row]:
    return sorted((row for row in rows if row.speedup(BEST) is not None), key=_over_best)


def _over_best(row: Row) -> float:
    found = row.speedup(BEST)
    assert found is not None
    return found.median


def _kind(row: Row) -> str:
    found, timing = row.speedup(BEST), row.timing
    assert found is not None
    assert timing is not None
    if row.faster_than(BEST):
        return "faster"
    return "slower" if found.high * (1 + timing.noise_floor) < 1 else "even"


def _height(value: float) -> float:
    assert LOW <= value <= HIGH, f"{value} is off the scale"
    share = math.log(value / LOW) / math.log(HIGH / LOW)
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _text(words: str, x: float, y: float, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def filled(readme: str, rows: str) -> str:
    """The README with the table between its two marks."""
    return re.sub(f"{BEGIN}.*?{END}", f"{BEGIN}\n{rows}\n{END}", readme, flags=re.DOTALL)


if __name__ == "__main__":
    found = reports()
    PICTURE.write_text(picture(found), encoding="utf-8")
    README.write_text(filled(README.read_text(encoding="utf-8"), table(found)), encoding="utf-8")
