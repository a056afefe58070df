"""How long a compiled kernel would take, from what the compiler says of it. Predicted, never measured.

Good for one thing: to rank kernels of the same task on a machine without a GPU. The model is
the one an expert has in mind when reading a resource report.

The task's roofline floor is the work. A kernel does it at the share of the machine's rate that
its resources allow, and the parts multiply:

- *residency*: registers, shared memory, warps and block slots bound how many programs one SM
  holds at once;
- *rate*: memory answers after some hundred nanoseconds, so the bytes in flight on an SM bound
  the rate (Little's law): each resident thread has a few loads of the kernel's width on their
  way, and a pipelined matrix kernel all its shared buffers but the one it computes on. Tensor
  cores also want some warps each to feed them;
- *waves*: programs come in waves of all SMs full; the last one costs as much as its programs
  would need alone on their SMs, though they be few. A grid smaller than the machine is one
  such wave;
- *spills* and *narrow loads* slow every program down.

The largest kernel (by threads) carries the floor. Every further launch, of it or of another
kernel, passes part of that traffic through memory again, in proportion to its threads, and costs
its launch.

What follows from the form, and is tested: spills, narrower loads and more launches never help;
a fuller last wave never hurts; an additional kernel never helps unless it is larger than all
others, for then the work is taken to be there. What the compiler does not say is not in it:
instruction counts, cache hits, bank conflicts, load imbalance, library calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from egg.core.evaluation import Compiled, KernelResources
from egg.hardware.gpus import KIB, Gpu

LAUNCH_MILLISECONDS = 0.003
"""From the end of one kernel to the first instruction of the next."""
ATTAINABLE = 0.9
"""Share of its data sheet that a GPU gives to the best kernels."""
MEMORY_LATENCY = 600e-9
"""Seconds from a load to its data, under load."""
LOADS_IN_FLIGHT = 4
"""Independent loads a thread has on their way."""
WARPS_FOR_TENSOR_CORES = 8
"""Resident warps that keep the tensor cores of an SM busy: two for each of four."""
REPASSED = 0.5
"""Part of the compulsory traffic that a further launch moves again: it reads what another one wrote."""
SPILL_BYTES_TO_DOUBLE = 256
"""Spilled bytes per thread that double a program's time."""
UNSEEN = 4.0
"""Times the floor, for a program whose launches could not be followed: about what unfused code takes."""
WORK_UNKNOWN_MILLISECONDS = 0.1
"""Stands for the floor where the work could not be counted; the ranking of one task's kernels needs only
that it is the same for all."""
DOES_NOT_FIT = 10.0

LOAD_COSTS = ((128, 1.0), (64, 1.05), (32, 1.15), (16, 1.5), (0, 2.0))
"""Slow-down by the width of the widest load, in bits: the first row that it reaches counts."""


@dataclass(frozen=True)
class SmLimits:
    """What one SM can hold at once, whatever it is."""

    warps: int
    blocks: int


_SM_LIMITS = {
    "sm_75": SmLimits(32, 16),
    "sm_80": SmLimits(64, 32),
    "sm_86": SmLimits(48, 16),
    "sm_89": SmLimits(48, 24),
    "sm_90": SmLimits(64, 32),
    "sm_100": SmLimits(64, 32),
    "sm_120": SmLimits(48, 24),
    "gfx942": SmLimits(32, 32),
}
_COMMON_LIMITS = SmLimits(48, 16)
_REGISTERS_AT_ONCE = 8
"""Registers per thread are given out in multiples of this."""
_SHARED_AT_ONCE = 128


def predicted_milliseconds(compiled: Compiled, gpu: Gpu) -> float:
    """A prediction of one forward's time on ``gpu``: positive and finite, whatever the compiler said."""
    floor = compiled.predicted_floor_milliseconds
    if floor is None or not math.isfinite(floor) or floor < 0:
        floor = WORK_UNKNOWN_MILLISECONDS
    work = floor / ATTAINABLE
    if not compiled.kernels:
        return LAUNCH_MILLISECONDS + work * UNSEEN
    largest = max(_threads(k, gpu) for k in compiled.kernels)
    carrying = max(slowdown(k, gpu) for k in compiled.kernels if _threads(k, gpu) == largest)
    passed = sum(_launches(k) * slowdown(k, gpu) * _threads(k, gpu) / largest for k in compiled.kernels)
    launches = sum(_launches(k) for k in compiled.kernels)
    return launches * LAUNCH_MILLISECONDS + work * ((1.0 - REPASSED) * carrying + REPASSED * passed)


def slowdown(kernel: KernelResources, gpu: Gpu) -> float:
    """How many times longer the kernel takes than the whole machine at its best; at least 1."""
    narrow = next(cost for bits, cost in LOAD_COSTS if (kernel.widest_load_bits or 128) >= bits)
    spilled = 1.0 + max(0, kernel.spill_bytes) / SPILL_BYTES_TO_DOUBLE
    misfit = 1.0 if resident_blocks(kernel, gpu) else DOES_NOT_FIT
    return _tail(kernel, gpu) * narrow * spilled * misfit / _rate(kernel, gpu, _held(kernel, gpu))


def resident_blocks(kernel: KernelResources, gpu: Gpu) -> int:
    """Programs of this kernel that one SM holds at once; 0 where not even one fits."""
    limits = _SM_LIMITS.get(gpu.arch, _COMMON_LIMITS)
    warps = max(1, kernel.num_warps)
    per_thread = _rounded_up(max(1, kernel.registers), _REGISTERS_AT_ONCE)
    kept_by_system = max(0, gpu.shared_per_sm - gpu.shared_per_block)
    shared = _rounded_up(max(0, kernel.shared_bytes), _SHARED_AT_ONCE) + min(kept_by_system, KIB)
    return min(
        limits.blocks,
        limits.warps // warps,
        gpu.registers_per_sm // (per_thread * gpu.warp_size * warps),
        gpu.shared_per_sm // shared if shared else limits.blocks,
    )


def occupancy(kernel: KernelResources, gpu: Gpu) -> float:
    """Resident warps as a share of those an SM can hold: 0 (does not fit) to 1."""
    limits = _SM_LIMITS.get(gpu.arch, _COMMON_LIMITS)
    return resident_blocks(kernel, gpu) * max(1, kernel.num_warps) / limits.warps


def waves(kernel: KernelResources, gpu: Gpu) -> float:
    """How many times one launch fills the whole GPU; below 1 some of it stays empty."""
    return _programs(kernel) / (gpu.sms * _held(kernel, gpu))


def _rate(kernel: KernelResources, gpu: Gpu, blocks: int) -> float:
    """Share of an SM's best rate that so many resident programs reach, in (0, 1]."""
    warps = blocks * max(1, kernel.num_warps)
    needed = gpu.bandwidth / gpu.sms * MEMORY_LATENCY
    load_bytes = (kernel.widest_load_bits or 128) / 8
    in_flight = warps * gpu.warp_size * load_bytes * LOADS_IN_FLIGHT
    if not kernel.tensor_core_instructions:
        return min(1.0, in_flight / needed)
    stages = max(1, kernel.num_stages)
    buffered = blocks * max(0, kernel.shared_bytes) * (stages - 1) / stages
    return min(1.0, max(in_flight, buffered) / needed, warps / WARPS_FOR_TENSOR_CORES)


def _tail(kernel: KernelResources, gpu: Gpu) -> float:
    """Time of all waves over the time of as many programs in full waves; at least 1.

    A wave's programs share their SM; alone on it, one of them runs faster, up to the rate that
    one can reach by itself. So a last wave, however empty, takes at least ``alone`` of a full one.
    """
    held = _held(kernel, gpu)
    alone = _rate(kernel, gpu, held) / (_rate(kernel, gpu, 1) * held)
    capacity = gpu.sms * held
    full, rest = divmod(_programs(kernel), capacity)
    last = rest / capacity
    return (full + max(last, alone)) / (full + last) if rest else 1.0


def _held(kernel: KernelResources, gpu: Gpu) -> int:
    return max(1, resident_blocks(kernel, gpu))


def _programs(kernel: KernelResources) -> int:
    return max(1, math.prod(kernel.grid))


def _launches(kernel: KernelResources) -> int:
    return max(1, kernel.launches)


def _threads(kernel: KernelResources, gpu: Gpu) -> int:
    """Of one launch."""
    return _programs(kernel) * max(1, kernel.num_warps) * gpu.warp_size


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
