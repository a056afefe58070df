"""Fit the constants of the prediction to kept measurements, and say how well they do on what they never saw.

    PYTHONPATH=src python benchmarks/seeing/fit.py variants.jsonl

One constant after the other is moved by ever smaller steps as long as the mean of the absolute
logarithm of predicted over measured falls: an error of two counts alike in both directions, and a
few wild misses do not decide. Each family of kernels is then predicted with constants fitted to
all the other families; that is the error to expect of a kernel that was never measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf, log
from pathlib import Path
from statistics import mean

from ranking import median_factor, spearman

from egg.analysis.predict import FITTED, Constants, predict
from egg.core.codec import from_json
from egg.core.resources import KernelResources
from egg.hardware.gpus import Gpu, resolve

STEPS = (1.5, 1.25, 1.1, 1.04)
ROUNDS = 6
RANGES = {
    "dram": (0.85, 0.92), "tensor": (0.65, 0.85), "tensor_by_warp": (0.2, 0.6), "product": (0.5, 0.85),
    "arithmetic": (0.4, 1.0), "special_per_clock": (15.0, 16.0), "l2_kept": (0.3, 1.0), "missed": (0.05, 0.5),
    "asked_together": (0.5, 1.0), "latency_dram": (300e-9, 1000e-9), "latency_l2": (150e-9, 500e-9),
    "dense_per_clock": (0.5, 1.0),
}  # fmt: skip
"""Within which a constant still means what it says: a fit that wants to leave them covers something else."""


@dataclass(frozen=True)
class Sample:
    family: str
    name: str
    kernel: KernelResources
    gpu: Gpu
    milliseconds: float


def read(path: Path) -> list[Sample]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    samples = [
        Sample(
            row["family"], row["name"], from_json(KernelResources, row["resources"]),
            resolve(row["machine"]["gpu"]), row["milliseconds"],
        )
        for row in rows
    ]  # fmt: skip
    return [s for s in samples if s.kernel.work is not None]


def predictions(samples: Sequence[Sample], constants: Constants) -> list[float]:
    found = [predict(s.kernel, s.gpu, constants) for s in samples]
    return [p.milliseconds for p in found if p is not None]


def error(samples: Sequence[Sample], constants: Constants) -> float:
    pairs = zip(predictions(samples, constants), samples, strict=True)
    return mean(abs(log(predicted / sample.milliseconds)) for predicted, sample in pairs)


def fit(samples: Sequence[Sample], start: Constants = FITTED) -> Constants:
    best, least = start, error(samples, start)
    for step in STEPS:
        for _ in range(ROUNDS):
            before = least
            for field in fields(Constants):
                for factor in (step, 1 / step):
                    low, high = RANGES.get(field.name, (0.0, inf))
                    value = min(high, max(low, getattr(best, field.name) * factor))
                    trial = replace(best, **{field.name: value})
                    if (found := error(samples, trial)) < least:
                        best, least = trial, found
            if before - least < 1e-4:
                break
    return best


def unseen(samples: Sequence[Sample]) -> list[float]:
    """Each sample predicted by constants fitted without its family."""
    by_family = {
        family: fit([s for s in samples if s.family != family]) for family in {s.family for s in samples}
    }
    return [predictions([s], by_family[s.family])[0] for s in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--unseen", action="store_true", help="also predict each family without having seen it"
    )
    options = parser.parse_args()
    samples = read(options.file)
    times = [s.milliseconds for s in samples]

    def show(what: str, predicted: Sequence[float]) -> None:
        rank, typical = spearman(predicted, times), median_factor(predicted, times)
        print(f"{what}: Spearman {rank:.3f}, median error factor {typical:.2f}, {len(times)} kernels")

    show("as they are", predictions(samples, FITTED))
    fitted = fit(samples)
    show("fitted", predictions(samples, fitted))
    for field in fields(Constants):
        print(f"    {field.name}: float = {getattr(fitted, field.name):.4g}")
    if options.unseen:
        show("families not seen", unseen(samples))


if __name__ == "__main__":
    main()
