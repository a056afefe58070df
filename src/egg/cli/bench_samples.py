"""Several samples of one suite: ``egg bench SUITE --samples N``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from egg.cli.words import command, plural
from egg.core.errors import UsageError
from egg.core.settings import Settings

if TYPE_CHECKING:
    from egg.api.benching.bench import BenchResult

SAMPLES = "egg.bench-samples/1"


def sample_places(place: Path, settings: Settings, samples: int) -> list[tuple[Path, Settings]]:
    """The folder and the settings of each sample; one sample is the bench itself."""
    if samples < 1:
        raise UsageError(f"--samples is {samples}", "a whole number from 1")
    if samples == 1:
        return [(place, settings)]
    return [
        (place / f"sample-{number}", replace(settings, seed=settings.seed + number - 1))
        for number in range(1, samples + 1)
    ]


def show_samples(
    results: list[BenchResult],
    place: Path,
    as_json: bool,
    to_json: Callable[[BenchResult], dict[str, Any]],
) -> None:
    """What several samples of a suite came to, and the exit code that goes with it."""
    from egg.bench.experiments import sampled

    found = sampled([result.rows for result in results])
    failed = any(result.failed for result in results)
    if as_json:
        each = [to_json(result) for result in results]
        whole = {"schema": SAMPLES, "folder": str(place), **found.to_json(), "benches": each}
        print(json.dumps(whole, indent=2))
    else:
        lines = [f"{plural(found.samples, 'sample')} of {plural(found.tasks, 'task')}"]
        lines += [f"pass@{at.k} {at.correct:.3f}, fast@{at.k} {at.fast:.3f}" for at in found.at]
        means = ", ".join("none" if value is None else f"{value:.3f}x" for value in found.geomeans)
        spread = f", standard deviation {found.spread:.3f}" if found.spread is not None else ""
        lines += [f"geometric mean over eager of each sample: {means}{spread}"]
        lines += [f"{command('bench score', result.folder)}" for result in results]
        print("\n".join(lines))
    raise typer.Exit(3 if failed else 0)
