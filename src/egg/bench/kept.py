"""Rows that were kept as evidence before a bench had a schema, read as rows of today.

``benchmarks/expert`` wrote one JSON object a task, with times and speedups as ``[median, low, high]`` and a
verdict in words. Everything a score or a page needs is in it except the operator family and KernelBench's
comparison: these stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from egg.bench.families import WorkFamily
from egg.bench.rows import Basis, NoKernel, Opponent, Passed, Refused, Row, Spent, Timing, Unable, Verdict
from egg.core.codec import from_json
from egg.core.evaluation import Gate, Interval
from egg.core.policy import Policy

REFUSED, MACHINE = "refused at ", "machine: "


def is_kept(data: Mapping[str, Any]) -> bool:
    """Whether this is a row of ``benchmarks/expert``."""
    return "schema" not in data and {"level", "problem", "verdict", "budget", "seconds"} <= set(data)


def kept_row(data: Mapping[str, Any]) -> Row:
    level, problem = int(data["level"]), int(data["problem"])
    return Row(
        key=f"{level}/{problem}",
        name=data["name"],
        task=data["task"],
        level=level,
        problem=problem,
        family=WorkFamily.UNKNOWN,
        verdict=_verdict(data),
        policy=from_json(Policy, dict(data["policy"])),
        spent=Spent(evaluations=data["evaluations"], wall_seconds=data["seconds"]["all"]),
        versions=data["versions"],
        settings={"team": "expert", "budget": data["budget"]},
    )


def _verdict(data: Mapping[str, Any]) -> Verdict:
    said: str = data["verdict"]
    if said.startswith(REFUSED):
        last = (data.get("refused") or [said])[-1]
        return Refused(data["kernel"] or "", Gate(said.removeprefix(REFUSED)), last.rpartition(": ")[2])
    if said.startswith(MACHINE):
        return Unable(said.removeprefix(MACHINE))
    if said != Passed.kind:
        return NoKernel(said)
    return Passed(
        kernel=data["kernel"],
        own_share=data["own_share"],
        library_ops=data["library_ops"],
        launches=data["launches"],
        relative_error=data["error"],
        reference_error=data["reference_error"],
        kernelbench=None,
        timing=_timing(data),
        floor_milliseconds=data["floor_ms"],
        predicted_milliseconds=data["predicted_ms"],
        limiter=(data["diagnosis"] or "").partition(",")[0],
    )


def _timing(data: Mapping[str, Any]) -> Timing | None:
    if not data.get("ms"):
        return None
    opponents = (
        Opponent(name, Basis.MATCHED, _interval(found["ms"]), _interval(found["speedup"]))
        for name, found in data["baselines"].items()
    )
    return Timing(data["versions"]["gpu"], _interval(data["ms"]), tuple(opponents), data["noise"])


def _interval(found: Sequence[float]) -> Interval:
    return Interval(*found)
