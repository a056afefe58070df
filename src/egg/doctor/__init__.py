"""Preflight: can this machine judge kernels, how well, and what would mend it?

:func:`gather` looks at the machine, :func:`diagnose` turns what it saw into findings.
"""

from __future__ import annotations

from egg.doctor.diagnosis import Finding, Status, diagnose, failed
from egg.doctor.machine import Facts, GpuFacts, gather

__all__ = ["Facts", "Finding", "GpuFacts", "Status", "diagnose", "failed", "gather"]
