"""Rows that were kept as evidence before a bench had a schema, read as rows of today.

Version 0.1.0 (``benchmarks/expert``) wrote one JSON object a task, with times and speedups as
``[median, low, high]`` and a verdict in words. Everything a score or a page needs is in it except the
operator family and KernelBench's comparison: these stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from egg.bench.families import WholeFamily
from egg.bench.figures import StepOutcome, Structure
from egg.bench.rows import (
    TROUBLE,
    Basis,
    NoKernel,
    Opponent,
    Passed,
    Refused,
    Row,
    Spent,
    Timing,
    Unable,
    Verdict,
)
from egg.core.codec import from_json
from egg.core.evaluation import Gate, Interval
from egg.core.policy import Policy

REFUSED, MACHINE = "refused at ", "machine: "
EARLIER = "earlier"
"""The note of a row whose kernel is not the one that the team writes now."""
_STEP = re.compile(r"(?P<stage>\w+): (?P<decision>.+?)(?: (?P<gain>[\d.]+)x)?")


def is_kept(data: Mapping[str, Any]) -> bool:
    """Whether this is a row of that benchmark."""
    return "schema" not in data and {"level", "problem", "verdict", "budget", "seconds"} <= set(data)


def kept_row(data: Mapping[str, Any]) -> Row:
    level, problem = int(data["level"]), int(data["problem"])
    return Row(
        key=f"{level}/{problem}",
        name=data["name"],
        task=data["task"],
        level=level,
        problem=problem,
        family=WholeFamily.UNKNOWN,
        verdict=_verdict(data),
        policy=from_json(Policy, dict(data["policy"])),
        spent=Spent(
            evaluations=data["evaluations"],
            wall_seconds=data["seconds"]["all"],
            final_seconds=data["seconds"].get("final", 0.0),
        ),
        versions=data["versions"],
        settings={"team": "expert", "budget": data["budget"]},
        warnings=tuple(data.get("missing", ())),
        refusals=tuple(data.get("refused", ())),
        steps=tuple(map(_step, data.get("gains", ()))),
        notes=_notes(data),
    )


def _verdict(data: Mapping[str, Any]) -> Verdict:
    words: str = data["verdict"]
    if words.startswith(REFUSED):
        last = (data.get("refused") or [words])[-1]
        return Refused(data["kernel"] or "", Gate(words.removeprefix(REFUSED)), last.rpartition(": ")[2])
    if words.startswith(MACHINE):
        return Unable(words.removeprefix(MACHINE))
    if words != Passed.kind:
        return NoKernel(words)
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
        limiter=re.split("[,:]", data["diagnosis"] or "")[0],
        diagnosis=data["diagnosis"] or "",
        structure=_structure(data["structure"]),
    )


def _structure(data: Mapping[str, Any] | None) -> Structure | None:
    if data is None:
        return None
    lists = {name: tuple(data.get(name, ())) for name in ("kinds", "moves", "repairs")}
    return Structure(kernels=data["kernels"], left=data["left"], **lists)


def _step(text: str) -> StepOutcome:
    """``tiling: promoted 1.381x``, or without a ratio where nothing was timed."""
    found = _STEP.fullmatch(text)
    if found is None:
        raise ValueError(f"not the outcome of a step: {text!r}")
    return StepOutcome(found["stage"], found["decision"], float(found["gain"]) if found["gain"] else None)


def _notes(data: Mapping[str, Any]) -> dict[str, Any]:
    notes = {EARLIER: True} if data.get(EARLIER) else {}
    return notes | ({TROUBLE: data["trouble"]} if data.get("trouble") else {})


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
