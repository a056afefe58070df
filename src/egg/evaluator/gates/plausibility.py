"""Plausibility: nothing runs faster than the memory can deliver or the units can compute.

The byte floor counts inputs, parameters and outputs once, and of a tensor that the reference only indexes no
more than it picks, as the facts of a task do. The compute floor counts the
reference's own algorithm, which an honest better algorithm may beat, so passing below it is
flagged for audit and only the byte floor refuses; and that only where the reference does not
itself gather or slice, because then part of the bytes may honestly never be read.
"""

from __future__ import annotations

from dataclasses import replace

from egg.evaluator.operators.ops import PARTIAL, Recorder
from egg.evaluator.task.tables import TableMeter
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial
from egg.hardware.gpus import Gpu
from egg.hardware.roofline import effective_precision, floor_seconds

BYTE_MARGIN = 0.85
"""Caches hold part of what was written last; the peak in the table is a data sheet's."""
EXTRAORDINARY = 10.0


def run(trial: Trial) -> Notes:
    gpu = trial.gpu
    if gpu is None:
        trial.warnings.append("this GPU is not in the table: no roofline check was made")
        return {"floor_milliseconds": None}
    bytes_floor, operations_floor = floors(trial, gpu)
    floor = max(bytes_floor, operations_floor)
    found = trial.measured
    assert found is not None
    trial.measured = replace(found, floor_milliseconds=floor)
    measured = found.milliseconds.median
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
    gain = next((b.speedup.median for b in found.baselines if b.name == "eager"), 0.0)
    if gain > EXTRAORDINARY:
        trial.warnings.append(f"an extraordinary gain ({gain:.1f}x over eager): worth an audit")
    return {"floor_milliseconds": floor, "bytes_floor_milliseconds": bytes_floor}


def floors(trial: Trial, gpu: Gpu) -> tuple[float, float]:
    """Milliseconds that the memory needs for the bytes, and for the reference's own operations the fastest
    unit that its accuracy allows."""
    case = trial.reference.question("counted")
    with TableMeter((*case.tensors, *trial.reference.module.parameters())) as counter:
        trial.reference.run(case.inputs)
    least = max(0, trial.buffers.bytes_per_call - counter.tables.spared)
    dtype = next((t.dtype for t in case.tensors if t.is_floating_point()), "float32")
    precision = effective_precision(
        trial.policy.precision.value, dtype=str(dtype), reference_error=trial.checks.worst.reference_relative
    )
    operations = floor_seconds(gpu, flops=counter.flops, bytes=0, precision=precision)
    return least / gpu.bandwidth * 1e3, operations * 1e3


def _reads_everything(trial: Trial) -> bool:
    with Recorder() as recorder:
        trial.reference.run(trial.reference.question("watched").inputs)
    return not recorder.seen & PARTIAL
