"""Calibrations of cards that give known shares of their data sheets."""

from __future__ import annotations

from egg.analysis.calibrated import FITTED_ON
from egg.hardware.calibration import Calibration
from egg.hardware.gpus import Gpu


def measured(gpu: Gpu, *, memory=0.887, matrix=0.707, vector=0.973, gap=1.35e-6) -> Calibration:
    """Of a card that gives these shares of its data sheet."""
    return Calibration(
        gpu=gpu.name, driver="", torch="", triton="", when="2026-01-01T00:00:00+00:00",
        copy_bandwidth=memory * gpu.bandwidth, read_bandwidth=memory * gpu.bandwidth,
        l2_bandwidth=FITTED_ON.l2_bytes_per_clock * gpu.sms * gpu.clock,
        matrix={p: matrix * peak for p, peak in gpu.tensor.items()},
        vector_fp32=vector * gpu.vector["fp32"],
        launch_milliseconds=0.01, gap_milliseconds=gap * 1e3,
    )  # fmt: skip
