"""``python -m egg.evaluator.calibrate [--out FILE] [--device cuda:N]``: what this GPU really gives.

Measures what predictions are made with: bandwidth of memory and of L2, rates of the matrix
and of the ordinary units, the cost of a launch. Our own code only, so it runs in this process;
about ten seconds. Needs the standard library, torch and triton.

Each figure is the median over repeats between two events on the stream. A launch is measured
twice: as Python issues empty kernels one after the other, and as the GPU takes them when all
of them already wait in its queue.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import torch
import triton

from egg.core.errors import EggError, MachineError
from egg.evaluator.calibrate.gpu_bench import Bench, CudaStopwatch, Probe, make_bench
from egg.evaluator.process.machine import choose_device
from egg.hardware.calibration import Calibration, compare, write
from egg.hardware.gpus import find

PROBE_MILLISECONDS = 400.0
"""Time spent on each figure, as far as the least number of repeats allows."""
LEAST_REPEATS, MOST_REPEATS = 5, 50
LAUNCHES = 200
"""Empty kernels in a row: more than enough to even out, far fewer than a queue holds."""
ROUNDS = 5


class Stopwatch(Protocol):
    """How long things take on the device, in milliseconds."""

    def times(self, run: Callable[[], object], repeats: int, *, cold: bool) -> Sequence[float]:
        """Of each of ``repeats`` runs."""
        ...

    def issued(self, run: Callable[[], object], count: int) -> float:
        """Of ``count`` runs together, launched as fast as Python can."""
        ...

    def queued(self, run: Callable[[], object], count: int) -> float:
        """Of ``count`` runs together that all waited in the queue before the first of them began."""
        ...


def measure(device: torch.device | str = "auto") -> Calibration:
    """Calibrate one GPU; :class:`MachineError` where there is none, or too little of it is free."""
    chosen = choose_device(device) if isinstance(device, str) else device
    if chosen.type != "cuda":
        raise MachineError("no GPU here to calibrate", "run it on the machine whose GPU is meant")
    with torch.cuda.device(chosen), _precision_restored():
        try:
            return calibrated(make_bench(chosen), CudaStopwatch(chosen))
        except torch.OutOfMemoryError as error:
            hint = "stop the other work on this GPU: it disturbs as well"
            raise MachineError("too little GPU memory is free to calibrate", hint) from error
        finally:
            torch.cuda.empty_cache()


def calibrated(bench: Bench, stopwatch: Stopwatch) -> Calibration:
    """Run a bench through. Memory comes first and products last: those heat the card up."""
    copy, read, l2 = (rate(probe, stopwatch) for probe in (bench.copy, bench.read, bench.l2))
    vector = rate(bench.vector, stopwatch)
    launch = per_launch(stopwatch.issued, bench.empty)
    gap = per_launch(stopwatch.queued, bench.empty)
    products = ((precision, make()) for precision, make in bench.matrix.items())
    matrix = {precision: rate(probe, stopwatch) for precision, probe in products if probe is not None}
    return Calibration(
        gpu=bench.gpu,
        driver=bench.driver,
        torch=str(torch.__version__),
        triton=triton.__version__,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        copy_bandwidth=copy,
        read_bandwidth=read,
        l2_bandwidth=l2,
        matrix=matrix,
        vector_fp32=vector,
        launch_milliseconds=launch,
        gap_milliseconds=gap,
    )


def rate(probe: Probe, stopwatch: Stopwatch) -> float:
    """Amount per second, by the median of as many runs as fit the time a figure may take."""
    stopwatch.times(probe.run, 2, cold=probe.cold)
    once = statistics.median(stopwatch.times(probe.run, 3, cold=probe.cold))
    fitting = int(PROBE_MILLISECONDS / once) if once > 0 else MOST_REPEATS
    repeats = max(LEAST_REPEATS, min(MOST_REPEATS, fitting))
    return probe.amount / (_median(stopwatch.times(probe.run, repeats, cold=probe.cold)) * 1e-3)


def per_launch(clock: Callable[[Callable[[], object], int], float], empty: Callable[[], object]) -> float:
    """Milliseconds of one of many launches in a row: the median over some rounds, after one for warming."""
    clock(empty, LAUNCHES)
    return _median([clock(empty, LAUNCHES) for _ in range(ROUNDS)]) / LAUNCHES


def _median(milliseconds: Sequence[float]) -> float:
    middle = statistics.median(milliseconds)
    if not middle > 0:
        raise MachineError("the GPU's clock does not move", "check the driver with `nvidia-smi`")
    return middle


@contextmanager
def _precision_restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m egg.evaluator.calibrate", description="Measure a GPU.")
    parser.add_argument("--out", type=Path, help="write the calibration there instead of printing it")
    parser.add_argument("--device", default="auto", help="auto, cuda or cuda:N")
    chosen = parser.parse_args(arguments)
    try:
        calibration = measure(chosen.device)
    except EggError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    _tell(calibration)
    if chosen.out is None:
        print(json.dumps(calibration.to_json(), indent=2))
    else:
        write(calibration, chosen.out)
    return 0


def _tell(calibration: Calibration) -> None:
    print(calibration.gpu, file=sys.stderr)
    for row in compare(calibration, find(calibration.gpu)):
        of = f", {row.share:.0%} of the data sheet's {row.sheet:.4g}" if row.share else ""
        print(f"  {row.name}: {row.measured:.4g} {row.unit}{of}", file=sys.stderr)
