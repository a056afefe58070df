"""Preflight: can this machine judge kernels, how well, and how to fix it?

:func:`gather` looks at the machine, :func:`diagnose` turns what it saw into findings.
:func:`calibrate` measures a GPU and keeps the result for predictions.
"""

from __future__ import annotations

from egg.doctor.calibrating import Calibrated, calibrate
from egg.doctor.diagnosis import Finding, Status, diagnose, failed
from egg.doctor.machine import Facts, GpuFacts, gather

__all__ = [
    "Calibrated",
    "Facts",
    "Finding",
    "GpuFacts",
    "Status",
    "calibrate",
    "diagnose",
    "failed",
    "gather",
]
