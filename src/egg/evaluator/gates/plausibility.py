"""Plausibility: nothing runs faster than the memory can deliver or the units can compute.

The byte floor counts inputs, parameters and outputs once. The compute floor counts the
reference's own algorithm, which an honest better algorithm may beat, so passing below it is
flagged for audit and only the byte floor refuses; and that only where the reference does not
itself gather or slice, because then part of the bytes may honestly never be read.
"""

from __future__ import annotations

import math
from typing import Any

from egg.evaluator.operators.ops import PARTIAL, Recorder
from egg.evaluator.task.meta import Meter
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.hardware.gpus import Gpu
from egg.hardware.roofline import effective_precision, floor_seconds

BYTE_MARGIN = 0.85
"""Caches hold part of what was written last; the peak in the table is a data sheet's."""
EXTRAORDINARY = 10.0


def run(trial: Trial) -> dict[str, Any]:
    gpu = trial.gpu
    if gpu is None:
        trial.warnings.append("this GPU is not in the table: no roofline check was made")
        trial.measured["floor_milliseconds"] = None
        return {"floor_milliseconds": None}
    bytes_floor = trial.buffers.bytes_per_call / gpu.bandwidth * 1e3
    operations_floor = compute_floor(trial, gpu)
    floor = max(bytes_floor, operations_floor)
    trial.measured["floor_milliseconds"] = floor
    measured = trial.measured["milliseconds"].median
    if measured < BYTE_MARGIN * bytes_floor and _reads_everything(trial):
        raise Refused(
            "plausibility.bytes",
            f"{measured:.4f} ms, but reading the inputs and weights and writing the outputs once takes "
            f"{bytes_floor:.4f} ms at {gpu.name}'s peak bandwidth",
            "not everything was read or written inside the timed window",
        )  # fmt: skip
    if measured < operations_floor:
        trial.warnings.append(
            f"faster than the reference's operations allow ({operations_floor:.4f} ms): less work, or a cheat"
        )
    if measured < BYTE_MARGIN * bytes_floor:
        trial.warnings.append(f"faster than reading everything once allows ({bytes_floor:.4f} ms): audit it")
    gain = next((b.speedup.median for b in trial.measured["baselines"] if b.name == "eager"), 0.0)
    if gain > EXTRAORDINARY:
        trial.warnings.append(f"an extraordinary gain ({gain:.1f}x over eager): worth an audit")
    return {"floor_milliseconds": floor, "bytes_floor_milliseconds": bytes_floor}


def compute_floor(trial: Trial, gpu: Gpu) -> float:
    """Milliseconds the reference's own operations need on the fastest unit its accuracy allows."""
    case = trial.reference.question("counted")
    with Meter(math.inf) as counter:
        trial.reference.run(case.inputs)
    dtype = next((t.dtype for t in case.tensors if t.is_floating_point()), "float32")
    precision = effective_precision(
        trial.policy.precision.value, dtype=str(dtype), reference_error=trial.checks.worst.reference_relative
    )
    return floor_seconds(gpu, flops=counter.flops, bytes=0, precision=precision) * 1e3


def _reads_everything(trial: Trial) -> bool:
    with Recorder() as recorder:
        trial.reference.run(trial.reference.question("watched").inputs)
    return not recorder.seen & PARTIAL
