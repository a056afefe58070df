"""Hold predictions against kept measurements: each variant, each family, the whole, and the worst misses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ranking import factor, median_factor, spearman
from tables import Table

from egg.analysis.predict import Predicted, predict
from egg.core.codec import from_json
from egg.core.resources import KernelResources
from egg.hardware.gpus import resolve

LEAST_CORRELATION, MOST_FACTOR, FEWEST = 0.8, 1.6, 60
WORST = 12


@dataclass(frozen=True)
class Compared:
    """One variant: what was measured, what is predicted, and which part of the machine decided."""

    family: str
    name: str
    measured: float
    predicted: Predicted

    @property
    def factor(self) -> float:
        return factor(self.predicted.milliseconds, self.measured)

    @property
    def deciding(self) -> str:
        return max(self.predicted.parts, key=self.predicted.parts.__getitem__)


def read(path: Path, gpu: str | None) -> tuple[list[Compared], list[str]]:
    """Every line, predicted for the GPU that measured it or for ``gpu``; and names without a prediction."""
    compared: dict[str, Compared] = {}
    unknown: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        predicted = predict(
            from_json(KernelResources, row["resources"]), resolve(gpu or row["machine"]["gpu"])
        )
        if predicted is None:
            unknown.append(row["name"])
        else:
            compared[row["name"]] = Compared(row["family"], row["name"], row["milliseconds"], predicted)
    return list(compared.values()), unknown


def compare(path: Path, gpu: str | None = None, markdown: Path | None = None) -> int:
    rows, unknown = read(path, gpu)
    if not rows:
        raise SystemExit(f"nothing in {path} can be predicted")
    variants, families, worst = tables(rows)
    text = summary(rows, unknown)
    print(f"\n{text}")
    if markdown:
        parts = [text, "## By family", families, "## Farthest off", worst, "## Every variant", variants]
        markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    correlation, error = agreement(rows)
    good = correlation is not None and correlation >= LEAST_CORRELATION and error <= MOST_FACTOR
    return 0 if good and len(rows) >= FEWEST else 1


def agreement(rows: Iterable[Compared]) -> tuple[float | None, float]:
    """Rank correlation and median error factor."""
    kept = list(rows)
    predicted, measured = [r.predicted.milliseconds for r in kept], [r.measured for r in kept]
    return spearman(predicted, measured), median_factor(predicted, measured)


def tables(rows: list[Compared]) -> tuple[str, str, str]:
    """Prints three tables, and returns them as Markdown."""
    each = Table(("family", "variant", "measured ms", "predicted ms", "factor", "decides", "tail"),
                 (14, 66, 12, 12, 7, 11, 5))  # fmt: skip
    each.begin()
    for row in rows:
        each.add(cells(row))
    print()
    families = Table(("family", "variants", "rank correlation", "median factor"), (14, 8, 16, 13))
    families.begin()
    for family in dict.fromkeys(r.family for r in rows):
        members = [r for r in rows if r.family == family]
        correlation, error = agreement(members)
        families.add((family, str(len(members)), number(correlation), number(error)))
    print("\nfarthest off:")
    worst = Table(each.headings, each.widths)
    worst.begin()
    for row in sorted(rows, key=lambda r: -r.factor)[:WORST]:
        worst.add(cells(row))
    return each.markdown(), families.markdown(), worst.markdown()


def cells(row: Compared) -> tuple[str, ...]:
    p = row.predicted
    sign = "+" if p.milliseconds > row.measured else "-"
    return (
        row.family, row.name, f"{row.measured:.4f}", f"{p.milliseconds:.4f}", f"{sign}{row.factor:.2f}",
        row.deciding, f"{p.tail:.2f}",
    )  # fmt: skip


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def summary(rows: list[Compared], unknown: list[str]) -> str:
    correlation, error = agreement(rows)
    within = sum(r.factor <= 2 for r in rows)
    lines = [
        f"{len(rows)} variants of {len({r.family for r in rows})} families",
        f"rank correlation {number(correlation)} (wanted at least {LEAST_CORRELATION})",
        f"median error factor {error:.2f} (wanted at most {MOST_FACTOR}); within a factor of 2: {within}",
    ]
    return "\n".join([*lines, f"not predicted: {', '.join(unknown)}"] if unknown else lines)
