"""What was measured on an H200 and is kept: the diagnosis and the prediction must go on doing as well."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from egg.core.profile import Rung

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "evidence" / "h200"


def benchmark(name: str) -> ModuleType:
    folder = str(ROOT / "benchmarks" / "seeing")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def test_the_planted_limiters_are_named_from_what_the_gpu_showed() -> None:
    planting = benchmark("planting")
    named = planting.score(planting.read_kept(KEPT / "planted.jsonl"))
    assert named[Rung.COUNTERS] >= (22, 24)
    assert named[Rung.TIMES] >= (20, 24)


def test_predicted_times_agree_with_measured_ones() -> None:
    comparing, ranking = benchmark("comparing"), benchmark("ranking")
    rows, unknown = comparing.read(KEPT / "variants.jsonl", None)
    predicted, measured = [r.predicted.milliseconds for r in rows], [r.measured for r in rows]
    assert not unknown
    assert len(rows) >= 120
    assert ranking.spearman(predicted, measured) > 0.95
    assert ranking.median_factor(predicted, measured) < 1.15
