"""What is run on a GPU to calibrate it, and the clock it is run under.

Memory figures start with an L2 that holds other data: it is filled by *reading* a buffer, for
lines left dirty by writing one would be carried back to memory during the measurement. L2 is
measured with a buffer of a quarter of it, read again and again past L1. Matrix rates are the
vendor library's on a large product.
"""

# Kernels are not typed Python: constexpr parameters take plain values, launches take a grid.
# pyright: reportIndexIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import triton
import triton.language as tl

from egg.core.errors import MachineError
from egg.hardware.detect import arch_of

GIB = 1 << 30
READ_BLOCK = 2048
FMA_BLOCK = 1024
FMA_UNROLL = 16
FMA_ITERATIONS = 4096
PROGRAMS_PER_SM = 8
WARM_UP_SECONDS = 0.5

_BUSY = ("too little GPU memory is free to calibrate", "stop the other work on this GPU: it disturbs as well")


@triton.jit
def read_kernel(source, sums, chunks, steps, BLOCK: tl.constexpr):
    """Each program reads every so-many-th chunk, round and round, past L1, and keeps only the sum."""
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        chunk = (program + step * tl.num_programs(0)) % chunks
        total += tl.load(source + chunk.to(tl.int64) * BLOCK + lanes, cache_modifier=".cg")
    tl.store(sums + program * BLOCK + lanes, total)


@triton.jit
def multiply_add_kernel(sums, factor, term, iterations, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Chains of dependent multiply-adds, several independent ones in each thread."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = offsets.to(tl.float32)
    factors = tl.full((BLOCK,), factor, tl.float32)
    terms = tl.full((BLOCK,), term, tl.float32)
    for _round in range(iterations):
        for _link in tl.static_range(UNROLL):
            value = tl.fma(value, factors, terms)
    tl.store(sums + offsets, value)


@triton.jit
def empty_kernel(pointer):
    pass


@dataclass(frozen=True)
class Probe:
    """Something to run, and how much of it one run does: bytes moved, or operations."""

    run: Callable[[], object]
    amount: float
    cold: bool = False
    """Whether L2 must hold other data before."""


@dataclass(frozen=True)
class Bench:
    """Everything that is run on one GPU. Products are made when their turn comes: they take memory."""

    gpu: str
    driver: str
    copy: Probe
    read: Probe
    l2: Probe
    vector: Probe
    matrix: Mapping[str, Callable[[], Probe | None]]
    """By precision; ``None`` where the library turns out to have no such product."""
    empty: Callable[[], object]


def make_bench(device: torch.device) -> Bench:
    """Buffers and kernels for one GPU, sized by its caches and its free memory, and warmed up."""
    properties = torch.cuda.get_device_properties(device)
    free, _ = torch.cuda.mem_get_info(device)
    programs = properties.multi_processor_count * PROGRAMS_PER_SM
    traffic = min(GIB, free // 8)
    if traffic < 4 * properties.L2_cache_size:
        raise MachineError(*_BUSY)
    source, target = (torch.ones(traffic // 4, device=device) for _ in range(2))
    sums = torch.empty(programs * max(READ_BLOCK, FMA_BLOCK), device=device)
    product = partial(_product, size=8192 if free > 8 * GIB else 4096, device=device)
    _warm_up(product("fp16"))
    return Bench(
        gpu=properties.name,
        driver=driver_version(Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version")),
        copy=Probe(lambda: target.copy_(source), 2.0 * source.nbytes, cold=True),
        read=_read(source, sums, programs, span=source.nbytes, traffic=source.nbytes, cold=True),
        l2=_read(source, sums, programs, span=properties.L2_cache_size // 4, traffic=8 * GIB, cold=False),
        vector=_multiply_add(sums, programs),
        matrix={precision: partial(product, precision) for precision in precisions(arch_of(properties))},
        empty=lambda: empty_kernel[(1,)](sums),
    )


def _read(
    source: torch.Tensor, sums: torch.Tensor, programs: int, *, span: int, traffic: int, cold: bool
) -> Probe:
    """Read the first ``span`` bytes of ``source`` as often as it takes to move ``traffic`` of them."""
    chunks, steps, moved = reading(span, traffic, programs)
    return Probe(lambda: read_kernel[(programs,)](source, sums, chunks, steps, BLOCK=READ_BLOCK), moved, cold)


def reading(span: int, traffic: int, programs: int) -> tuple[int, int, float]:
    """Chunks that ``span`` has, chunks each program reads, and the bytes that all of them read together.

    Where the traffic is the span itself no byte is read twice, unless the span is too small to
    give every program a chunk.
    """
    chunk_bytes = READ_BLOCK * 4
    chunks = max(1, span // chunk_bytes)
    steps = max(1, traffic // (programs * chunk_bytes))
    return chunks, steps, float(steps) * programs * chunk_bytes


def _multiply_add(sums: torch.Tensor, programs: int) -> Probe:
    def run() -> None:
        multiply_add_kernel[(programs,)](
            sums, 0.999, 0.001, FMA_ITERATIONS, BLOCK=FMA_BLOCK, UNROLL=FMA_UNROLL
        )

    return Probe(run, 2.0 * programs * FMA_BLOCK * FMA_ITERATIONS * FMA_UNROLL)


def precisions(arch: str) -> tuple[str, ...]:
    """Those the matrix units of an architecture take, as far as the library can be asked for them."""
    if arch.startswith("gfx"):
        return ("fp32", "bf16", "fp16", *(("fp8",) if arch.startswith(("gfx94", "gfx95")) else ()))
    capability = int(arch.removeprefix("sm_"))
    new = ("tf32", "bf16") if capability >= 80 else ()
    return ("fp32", *new, "fp16", *(("fp8",) if capability >= 89 else ()))


_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def _product(precision: str, *, size: int, device: torch.device) -> Probe | None:
    """A square product of normal numbers. Zeros would draw less power, and so run faster than real data."""
    operations = 2.0 * size**3
    if precision == "fp8":
        return _fp8_product(size, device, operations)
    left, right = (torch.randn(size, size, device=device, dtype=_DTYPES[precision]) for _ in range(2))
    out = torch.empty_like(left)

    def run() -> None:
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        torch.mm(left, right, out=out)

    return Probe(run, operations)


def _fp8_product(size: int, device: torch.device, operations: float) -> Probe | None:
    """``None`` where this torch has no such product for this GPU, which only trying tells."""
    scaled_mm = getattr(torch, "_scaled_mm", None)
    if scaled_mm is None:
        return None
    cdna3 = arch_of(torch.cuda.get_device_properties(device)).startswith("gfx94")
    dtype = torch.float8_e4m3fnuz if cdna3 else torch.float8_e4m3fn
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    one = torch.ones((), device=device)
    scales = {"scale_a": one, "scale_b": one}
    run = partial(scaled_mm, left, right.t(), **scales, out_dtype=torch.bfloat16, use_fast_accum=True)
    try:
        run()
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError):
        return None
    return Probe(run, operations)


def _warm_up(probe: Probe | None) -> None:
    """Bring the clocks up: an idle card takes some hundred milliseconds to do so."""
    end = time.perf_counter() + WARM_UP_SECONDS
    while probe is not None and time.perf_counter() < end:
        probe.run()
        torch.cuda.synchronize()


def driver_version(*files: Path) -> str:
    """The version in the first of the kernel's files that is there; empty where none is."""
    for file in files:
        try:
            found = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", file.read_text("utf-8"))
        except OSError:
            continue
        if found:
            return found[0]
    return ""


class CudaStopwatch:
    """Events on the current stream of one device; milliseconds."""

    def __init__(self, device: torch.device) -> None:
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._device = device
        self._other = torch.ones(max(2 * l2_bytes, 64 << 20) // 4, device=device)
        self._sink = torch.empty(FMA_BLOCK, device=device)
        self._blocking = 1 << 18

    def times(self, run: Callable[[], object], repeats: int, *, cold: bool) -> list[float]:
        starts, ends = ([_event() for _ in range(repeats)] for _ in range(2))
        torch.cuda.synchronize(self._device)
        for start, end in zip(starts, ends, strict=True):
            if cold:
                self._other.sum()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize(self._device)
        return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]

    def issued(self, run: Callable[[], object], count: int) -> float:
        start, end = _event(), _event()
        torch.cuda.synchronize(self._device)
        start.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize(self._device)
        return start.elapsed_time(end)

    def queued(self, run: Callable[[], object], count: int) -> float:
        """Behind a kernel that blocks the GPU, made longer until it outlasts the queueing: it counts only
        if the blocker was still running when the last launch had been queued."""
        for _ in range(8):
            start, end = _event(), _event()
            torch.cuda.synchronize(self._device)
            multiply_add_kernel[(1,)](
                self._sink, 0.999, 0.001, self._blocking, BLOCK=FMA_BLOCK, UNROLL=FMA_UNROLL
            )
            start.record()
            for _ in range(count):
                run()
            end.record()
            all_waited = not start.query()
            torch.cuda.synchronize(self._device)
            if all_waited:
                return start.elapsed_time(end)
            self._blocking *= 2
        raise MachineError("launches are too slow to measure the gap between kernels", "stop other work")


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
