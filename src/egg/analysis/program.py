"""How long a whole program should take where nothing can be measured. Always predicted.

Own kernels whose work is known are predicted one by one and added up. The task's roofline floor
stands for what is not known: work left to libraries, kernels that could not be followed, a
program whose launches could not be captured. So a kernel file that leaves half of the work to a
library does not look twice as fast.
"""

from __future__ import annotations

import math

from egg.analysis.occupancy import residency, waves
from egg.analysis.predict import FITTED, Constants, predict
from egg.core.evaluation import Compiled
from egg.core.resources import KernelResources
from egg.hardware.gpus import Gpu

ATTAINABLE = 0.8
"""Share of its floor's rate at which a library does the work left to it."""
UNSEEN = 4.0
"""Times the floor, for a program whose launches could not be followed: about what unfused code takes."""
WORK_UNKNOWN_MILLISECONDS = 0.1
"""Stands for the floor where the work could not be counted; the ranking of one task's kernels needs only
that it is the same for all."""
LONGEST_MILLISECONDS = 1e12
"""Of a floor that is believed: decades."""
SPILL_BYTES_TO_DOUBLE = 256
"""Spilled bytes per thread that double the time of a kernel whose work is not known."""
WARPS_TO_HIDE_LATENCY = 0.25
"""Occupancy below which a kernel whose work is not known slows down in proportion."""


def predicted_milliseconds(
    compiled: Compiled, gpu: Gpu, library_calls: int = 0, constants: Constants = FITTED
) -> float:
    """One forward on ``gpu``: positive and finite, whatever the compiler reports."""
    floor = compiled.predicted_floor_milliseconds
    if floor is None or not 0.0 <= floor <= LONGEST_MILLISECONDS:
        floor = WORK_UNKNOWN_MILLISECONDS
    launch = constants.launch * 1e3
    if not compiled.kernels:
        return (1 + library_calls) * launch + floor * UNSEEN
    known, covered, unknown = 0.0, 0.0, []
    for kernel in compiled.kernels:
        launches = max(1, kernel.launches)
        predicted = predict(kernel, gpu, constants)
        if predicted is None:
            unknown.append(kernel)
            continue
        known += launches * predicted.milliseconds
        covered += launches * predicted.floor_milliseconds
    left = max(0.0, floor - covered) / ATTAINABLE
    if unknown:
        known += sum(max(1, k.launches) for k in unknown) * launch + left * max(
            _hindered(k, gpu) for k in unknown
        )
    elif library_calls:
        known += library_calls * launch + left
    return known


def _hindered(kernel: KernelResources, gpu: Gpu) -> float:
    """How many times slower than the machine's best, by resources alone; at least 1."""
    held = residency(kernel, gpu)
    spilled = 1.0 + max(0, kernel.spill_bytes) / SPILL_BYTES_TO_DOUBLE
    sparse = max(1.0, WARPS_TO_HIDE_LATENCY / held.occupancy) if held.occupancy else 10.0
    filled = waves(kernel, gpu)
    return spilled * sparse * math.ceil(filled) / filled
