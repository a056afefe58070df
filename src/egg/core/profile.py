"""What was seen of a program while it ran, or what stands in for it where nothing could be seen.

A profile stands on one rung of a ladder, best first: hardware *counters*, kernel *times*, the
compiler's *resources*, the *model* alone. Each rung contains what the lower ones say. Why the
rungs above were not reached is part of the profile, so that a prediction is not taken for a
measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from egg.core.codec import from_json, to_json
from egg.core.resources import KernelResources

SCHEMA = "egg.profile/1"


class Rung(StrEnum):
    """How much can be seen, best first."""

    COUNTERS = "counters"
    TIMES = "times"
    RESOURCES = "resources"
    MODEL = "model"

    @property
    def measured(self) -> bool:
        """Whether a GPU ran the program."""
        return self in (Rung.COUNTERS, Rung.TIMES)

    @property
    def sources(self) -> str:
        """What is looked at, in words."""
        return _SOURCES[self]


_SOURCES = {
    Rung.COUNTERS: "hardware counters and measured times",
    Rung.TIMES: "the measured time, the compiler's word and a model of the GPU; no hardware counters",
    Rung.RESOURCES: "the compiler's word and a model of the GPU; nothing was measured, times are predicted",
    Rung.MODEL: "a model of the GPU alone; nothing was measured, times are predicted",
}


class Counter(StrEnum):
    """Hardware counters under names of our own, each over one launch of a kernel.

    A ``share`` is a fraction of what the hardware can sustain, 0 to 1.
    """

    NANOSECONDS = "nanoseconds"
    DRAM_READ_BYTES = "dram_read_bytes"
    DRAM_WRITTEN_BYTES = "dram_written_bytes"
    DRAM_SHARE = "dram_share"
    L2_BYTES = "l2_bytes"
    L2_SHARE = "l2_share"
    L2_HIT_RATE = "l2_hit_rate"
    L1_SHARE = "l1_share"
    L1_HIT_RATE = "l1_hit_rate"
    SM_SHARE = "sm_share"
    TENSOR_SHARE = "tensor_share"
    TENSOR_INSTRUCTIONS = "tensor_instructions"
    FMA_SHARE = "fma_share"
    ALU_SHARE = "alu_share"
    SPECIAL_SHARE = "special_share"
    LSU_SHARE = "lsu_share"
    ISSUE_SHARE = "issue_share"
    OCCUPANCY = "occupancy"
    """Resident warps as a share of an SM's slots, averaged over the cycles in which it had any."""
    OCCUPANCY_LIMIT = "occupancy_limit"
    """The same as far as registers, shared memory and block size allow."""
    BLOCKS_BY_REGISTERS = "blocks_by_registers"
    BLOCKS_BY_SHARED = "blocks_by_shared"
    BLOCKS_BY_WARPS = "blocks_by_warps"
    BLOCKS_BY_SLOTS = "blocks_by_slots"
    WAVES = "waves"
    GRID = "grid"
    THREADS = "threads"
    """Of one block."""
    REGISTERS = "registers"
    SHARED_BYTES = "shared_bytes"
    LOAD_REQUESTS = "load_requests"
    LOAD_SECTORS = "load_sectors"
    STORE_REQUESTS = "store_requests"
    STORE_SECTORS = "store_sectors"
    SHARED_WAVEFRONTS = "shared_wavefronts"
    SHARED_CONFLICTS = "shared_conflicts"
    """Wavefronts that only bank conflicts made necessary."""
    LOCAL_INSTRUCTIONS = "local_instructions"
    INSTRUCTIONS = "instructions"
    ATOMIC_SECTORS = "atomic_sectors"
    CYCLES = "cycles"
    SM_CYCLES_MEAN = "sm_cycles_mean"
    """Cycles in which an SM had work, over all SMs."""
    SM_CYCLES_MOST = "sm_cycles_most"
    SM_CYCLES_LEAST = "sm_cycles_least"
    STALL_MEMORY = "stall_memory"
    """Stalls are warps that wait so, per instruction issued: here for data from global or local memory."""
    STALL_SHARED = "stall_shared"
    """For shared memory and special functions."""
    STALL_BARRIER = "stall_barrier"
    STALL_FENCE = "stall_fence"
    STALL_QUEUE = "stall_queue"
    """The queues of the memory pipes are full."""
    STALL_MATH = "stall_math"
    """The arithmetic pipe is busy."""
    STALL_TENSOR = "stall_tensor"
    """For a warp group's matrix instruction."""
    STALL_FIXED = "stall_fixed"
    """For the fixed latency of the instruction before."""
    STALL_FETCH = "stall_fetch"


@dataclass(frozen=True)
class Lowered:
    """A rung that was not reached: why, and what would help."""

    rung: Rung
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a forward pass; launches of the same kernel are one entry."""

    name: str
    own: bool
    """Written by the candidate; else a library's, or one that PyTorch brought."""
    launches: int
    milliseconds: float | None
    """Of all its launches together; ``None`` where no GPU ran it."""
    predicted_milliseconds: float | None
    """What the model says of the same; ``None`` where too little is known."""
    resources: KernelResources | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    """By :class:`Counter`, of its longest launch; empty below that rung."""

    @property
    def best_milliseconds(self) -> float:
        """Measured if it was, predicted if not; 0 where nothing is known."""
        return self.milliseconds if self.milliseconds is not None else self.predicted_milliseconds or 0.0


@dataclass(frozen=True)
class Profile:
    """One warm forward pass of a program at full size."""

    program: str
    """The candidate's name, or the task's where the reference itself was profiled."""
    rung: Rung
    gpu: str
    """That ran it, or that it is compiled for."""
    kernels: tuple[KernelProfile, ...]
    """Longest first."""
    milliseconds: float | None
    """From the first kernel's start to the last one's end; ``None`` below the rung ``times``."""
    predicted_milliseconds: float | None
    launches: int
    lowered: tuple[Lowered, ...] = ()
    warnings: tuple[str, ...] = ()
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if self.rung.measured != (self.milliseconds is not None):
            raise ValueError(f"a profile by {self.rung.value} cannot have {self.milliseconds} ms measured")

    @property
    def busy_milliseconds(self) -> float | None:
        """Sum over the kernels, as measured; ``None`` where they were not."""
        return sum(k.milliseconds or 0.0 for k in self.kernels) if self.rung.measured else None

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Profile:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        return from_json(cls, data)
