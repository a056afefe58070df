"""What a rule says of a kernel: a limiter, the gain without it, and why."""

from __future__ import annotations

from dataclasses import dataclass

from egg.analysis.rules.view import KernelView
from egg.core.bottleneck import Evidence, Limiter

MOST_GAIN = 10.0
"""No estimate is good for more."""
NEAR, AT = 0.5, 0.85
"""Use of a unit at which it begins to be felt, and at which nothing else is."""


@dataclass(frozen=True)
class Finding:
    """A limiter that a rule found, before it is weighed against the others."""

    limiter: Limiter
    gain: float
    """Of removing it, if nothing else stood in the way."""
    evidence: tuple[Evidence, ...]
    unless: str
    """Completes "wrong if ..."."""
    relieves: frozenset[str] = frozenset()
    """Units that would have less to do; the others bound the gain."""
    above_floor: bool = True
    """Whether the kernel would still do the work that its floor was counted for."""


def evidence(name: str, value: float | None, unit: str, says: str) -> tuple[Evidence, ...]:
    """One number, or none where it is not known."""
    return () if value is None else (Evidence(name, value, unit, says),)


def saturation(use: float) -> float:
    """0 where a unit is not felt, 1 where it decides alone."""
    return min(1.0, max(0.0, (use - NEAR) / (AT - NEAR)))


def without(part: float) -> float:
    """How many times faster it is without this part of the time; finite."""
    return min(MOST_GAIN, 1.0 / max(1.0 / MOST_GAIN, 1.0 - part))


def bounded(finding: Finding, view: KernelView) -> float:
    """The gain that the rest of the machine allows, at least 1.

    What is not relieved needs its time still; nothing is faster than its launch; and a kernel that
    does the same work does not pass below the work's floor.
    """
    bounds = [finding.gain, MOST_GAIN]
    if finding.limiter is not Limiter.LAUNCH:
        bounds.append(1.0 / max(1.0 / MOST_GAIN, view.busiest(finding.relieves)))
        if view.milliseconds:
            bounds.append(view.milliseconds / view.launch_milliseconds)
    if finding.above_floor and view.work is not None and view.work.complete and view.headroom is not None:
        bounds.append(view.headroom)
    return max(1.0, min(bounds))
