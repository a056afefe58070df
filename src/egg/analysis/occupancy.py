"""How many programs of a kernel one SM holds at once, what bounds that, and how a grid fills the GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from egg.core.resources import KernelResources
from egg.hardware.gpus import KIB, Gpu

Limit = Literal["registers", "shared", "warps", "slots"]

REGISTERS_AT_ONCE = 8
"""Registers per thread are given out in multiples of this."""
SHARED_AT_ONCE = 128
"""Shared memory is given out in multiples of so many bytes."""


@dataclass(frozen=True)
class Residency:
    """What one SM holds of a kernel at once."""

    blocks: int
    """Programs; 0 where not even one fits."""
    limit: Limit
    """Which resource allows no more; of several, the one that is scarcest first in this order: registers,
    shared memory, warps, block slots."""
    occupancy: float
    """Resident warps as a share of an SM's, 0 to 1."""


def residency(kernel: KernelResources, gpu: Gpu) -> Residency:
    """From registers, shared memory, warps and block slots, as the driver computes it."""
    warps = max(1, kernel.num_warps)
    per_thread = _rounded_up(max(1, kernel.registers), REGISTERS_AT_ONCE)
    kept_by_system = min(max(0, gpu.shared_per_sm - gpu.shared_per_block), KIB)
    shared = _rounded_up(max(0, kernel.shared_bytes), SHARED_AT_ONCE) + kept_by_system
    allowed: dict[Limit, int] = {
        "registers": gpu.registers_per_sm // (per_thread * gpu.warp_size * warps),
        "shared": gpu.shared_per_sm // shared if shared else gpu.blocks_per_sm,
        "warps": gpu.warps_per_sm // warps,
        "slots": gpu.blocks_per_sm,
    }
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limit]
    return Residency(blocks, limit, min(1.0, blocks * warps / gpu.warps_per_sm))


def programs(kernel: KernelResources) -> int:
    """Of one launch; at least 1."""
    return max(1, math.prod(kernel.grid))


def waves(kernel: KernelResources, gpu: Gpu) -> float:
    """How many times one launch fills the whole GPU; below 1 some of it stays empty."""
    return programs(kernel) / (gpu.sms * max(1, residency(kernel, gpu).blocks))


def last_wave_fill(kernel: KernelResources, gpu: Gpu) -> float:
    """How full the GPU is in the last wave, above 0 to 1."""
    rest = waves(kernel, gpu) % 1.0
    return rest or 1.0


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
