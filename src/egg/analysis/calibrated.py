"""The model's constants for a card that was measured.

They were fitted to kernels on one GPU. What that GPU gives to a copy, to the vendor's products, to
multiply-adds and to an empty launch was measured as well; another card is expected to give Triton's
kernels more or less in the same proportion. So a calibration of the fitted GPU changes nothing, and
constants that nothing measured (latencies, instructions, shares of a cache) stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from egg.analysis.predict import FITTED, Constants
from egg.hardware.calibration import Attained, Calibration, attained
from egg.hardware.gpus import Gpu

FITTED_ON = Attained(memory=0.887, matrix=0.707, vector=0.973, l2_bytes_per_clock=37.4, gap_seconds=1.35e-6)
"""What `egg doctor --calibrate` found on the H200 that :data:`~egg.analysis.predict.FITTED` comes from."""


def calibrated(gpu: Gpu, calibration: Calibration, constants: Constants = FITTED) -> Constants:
    """``constants`` as the calibration of ``gpu`` corrects them; no rate passes its data sheet."""
    found = attained(gpu, calibration)
    matrix = found.matrix / FITTED_ON.matrix if found.matrix and FITTED_ON.matrix else 1.0
    vector = found.vector / FITTED_ON.vector
    return replace(
        constants,
        launch=max(found.gap_seconds, constants.launch + found.gap_seconds - FITTED_ON.gap_seconds),
        dram=min(1.0, constants.dram * found.memory / FITTED_ON.memory),
        l2_bytes_per_clock=constants.l2_bytes_per_clock
        * found.l2_bytes_per_clock
        / FITTED_ON.l2_bytes_per_clock,
        tensor=min(1.0, constants.tensor * matrix),
        tensor_by_warp=min(1.0, constants.tensor_by_warp * matrix),
        product=min(1.0, constants.product * vector),
        arithmetic=min(1.0, constants.arithmetic * vector),
    )
