"""One kernel as the rules see it: counters, times, resources, work and the model in one read-only place.

Every rule reads the same numbers, whatever they come from. A number that counters give is taken
from them, else from the compiler, the counted work and the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from egg.analysis.occupancy import Limit, programs, residency
from egg.analysis.rules.units import KernelUnits
from egg.core.profile import Counter
from egg.core.resources import SECTOR_BYTES
from egg.hardware.roofline import compute_peak

SCALAR_TRIP_BYTES = 32.0
"""Loaded per program and trip: not more than one sector is a chain of single loads."""
CHAIN_TRIPS = 32
SCHEDULERS = 4
"""Of an SM; each has a quarter of its warps."""

_BLOCKS_BY: tuple[tuple[Counter, Limit], ...] = (
    (Counter.BLOCKS_BY_REGISTERS, "registers"),
    (Counter.BLOCKS_BY_SHARED, "shared"),
    (Counter.BLOCKS_BY_WARPS, "warps"),
    (Counter.BLOCKS_BY_SLOTS, "slots"),
)
_STALLS = {
    "memory": Counter.STALL_MEMORY,
    "shared": Counter.STALL_SHARED,
    "barrier": Counter.STALL_BARRIER,
    "fence": Counter.STALL_FENCE,
    "queue": Counter.STALL_QUEUE,
    "math": Counter.STALL_MATH,
    "tensor": Counter.STALL_TENSOR,
    "fixed": Counter.STALL_FIXED,
    "fetch": Counter.STALL_FETCH,
}


class KernelView(KernelUnits):
    """Everything that a rule may read of a kernel; ``None`` where a number is not known."""

    # -- grid ------------------------------------------------------------------------------------------

    @cached_property
    def grid(self) -> int | None:
        """Programs of one launch."""
        counted = self.counter(Counter.GRID)
        if counted:
            return max(1, round(counted))
        return programs(self.resources) if self.resources else None

    @cached_property
    def num_warps(self) -> int | None:
        threads = self.counter(Counter.THREADS)
        if threads:
            return max(1, round(threads / self.gpu.warp_size))
        return max(1, self.resources.num_warps) if self.resources else None

    @cached_property
    def held(self) -> tuple[int, Limit] | None:
        """Programs one SM holds at once, and what allows no more."""
        counted: list[tuple[int, Limit]] = [
            (max(1, round(c)), limit) for name, limit in _BLOCKS_BY if (c := self.counter(name))
        ]
        if len(counted) == len(_BLOCKS_BY):
            return min(counted, key=lambda found: found[0])
        if self.resources is None:
            return None
        found = residency(self.resources, self.gpu)
        return found.blocks, found.limit

    @cached_property
    def occupancy_limit(self) -> float | None:
        """Resident warps that the resources allow, as a share of an SM's."""
        counted = self.counter(Counter.OCCUPANCY_LIMIT)
        if counted is not None:
            return min(1.0, counted)
        if self.held is None or self.num_warps is None:
            return None
        return min(1.0, self.held[0] * self.num_warps / self.gpu.warps_per_sm)

    @cached_property
    def waves(self) -> float | None:
        """How many times one launch fills the GPU."""
        counted = self.counter(Counter.WAVES)
        if counted:
            return counted
        if self.grid is None or self.held is None:
            return None
        return self.grid / (self.gpu.sms * max(1, self.held[0]))

    # -- memory ----------------------------------------------------------------------------------------

    @cached_property
    def sector_efficiency(self) -> float | None:
        """Share of the bytes in the touched sectors that was asked for.

        Asked-for bytes come from the work, touched sectors from counters if they were counted. Where
        only sectors are known, a request of the widest load's width says how many it needs.
        """
        sectors = self._sectors
        if self.work is not None and self.work.complete:
            asked = self.work.loaded_bytes + self.work.stored_bytes
            if sectors and asked:
                return min(1.0, asked / (sectors * SECTOR_BYTES))
            return self.work.sector_efficiency
        loads, requests = self.counter(Counter.LOAD_SECTORS), self.counter(Counter.LOAD_REQUESTS)
        if loads and requests:
            width = self.load_bits or 128
            return min(1.0, width / 8 * self.gpu.warp_size / SECTOR_BYTES * requests / loads)
        return self.work.sector_efficiency if self.work else None

    @property
    def _sectors(self) -> float | None:
        loads, stores = self.counter(Counter.LOAD_SECTORS), self.counter(Counter.STORE_SECTORS)
        if loads is None or stores is None or self._copy_engine:
            return None
        return loads + stores

    @property
    def _copy_engine(self) -> bool:
        """Whether most bytes come by a copy engine, whose sectors the load and store pipe does not count."""
        loads, work = self.counter(Counter.LOAD_SECTORS), self.work
        return bool(work and loads is not None and loads * SECTOR_BYTES < 0.5 * work.loaded_bytes)

    @property
    def load_bits(self) -> int | None:
        """Per thread, of the widest load through registers; ``None`` where there is none, or not known."""
        return (self.resources.widest_load_bits or None) if self.resources else None

    @cached_property
    def sectors_per_load(self) -> float | None:
        sectors, requests = self.counter(Counter.LOAD_SECTORS), self.counter(Counter.LOAD_REQUESTS)
        return sectors / requests if sectors is not None and requests else None

    @cached_property
    def dram_bytes(self) -> float | None:
        read, written = self.counter(Counter.DRAM_READ_BYTES), self.counter(Counter.DRAM_WRITTEN_BYTES)
        return read + written if read is not None and written is not None else None

    @cached_property
    def traffic_ratio(self) -> float | None:
        """Bytes over the memory bus, as counted, over the distinct ones that had to cross it."""
        return self._over_distinct(self.dram_bytes)

    @cached_property
    def reread_ratio(self) -> float | None:
        """Bytes asked of L2 over the distinct ones."""
        return self._over_distinct(self.work.sector_bytes if self.work else None)

    def _over_distinct(self, moved: float | None) -> float | None:
        distinct = self.work.distinct_bytes if self.work else 0.0
        return moved / distinct if moved is not None and distinct else None

    @cached_property
    def conflict_share(self) -> float | None:
        """Of the wavefronts in shared memory, those that only bank conflicts made necessary."""
        conflicts = self.counter(Counter.SHARED_CONFLICTS)
        wavefronts = self.counter(Counter.SHARED_WAVEFRONTS)
        return min(1.0, conflicts / wavefronts) if conflicts is not None and wavefronts else None

    @cached_property
    def local_share(self) -> float | None:
        """Of the executed instructions, those that move spilled registers."""
        local, executed = self.counter(Counter.LOCAL_INSTRUCTIONS), self.counter(Counter.INSTRUCTIONS)
        return min(1.0, local / executed) if local is not None and executed else None

    @cached_property
    def stalls(self) -> Mapping[str, float]:
        """By reason, the share of a warp's time; the rest is issuing. Empty where none was counted.

        Stalls are counted in warps per issued instruction. All of a scheduler's warps are stalled
        for some reason or issue, so their number over its rate of issuing is the whole; it stands in
        for reasons that were not counted.
        """
        waited = {name: w for name, counter in _STALLS.items() if (w := self.counter(counter)) is not None}
        total = sum(waited.values()) + 1.0
        resident, issued = self.counter(Counter.OCCUPANCY), self.counter(Counter.ISSUE_SHARE)
        if resident and issued:
            total = max(total, resident * self.gpu.warps_per_sm / SCHEDULERS / issued)
        return {name: w / total for name, w in waited.items()}

    @property
    def chained(self) -> bool:
        """Whether each program goes through many trips that load hardly anything: each waits for the last."""
        work = self.work
        if work is None or self.grid is None or work.iterations < CHAIN_TRIPS or work.loaded_bytes <= 0:
            return False
        return work.loaded_bytes / (self.grid * work.iterations) <= SCALAR_TRIP_BYTES

    @property
    def loaded_per_trip(self) -> float:
        """Bytes that a thread loads in each trip through the inner loop; infinite where that is not known."""
        work = self.work
        if work is None or self.grid is None or self.num_warps is None:
            return math.inf
        return work.loaded_bytes / (
            self.grid * self.num_warps * self.gpu.warp_size * max(1.0, work.iterations)
        )

    # -- products --------------------------------------------------------------------------------------

    @cached_property
    def tensor_flops(self) -> float:
        return sum(self.work.tensor_flops.values()) if self.work else 0.0

    @property
    def uses_tensor_cores(self) -> bool:
        counted = self.counter(Counter.TENSOR_INSTRUCTIONS)
        if counted is not None:
            return counted > 0
        return bool(self.resources and self.resources.tensor_core_instructions)

    @property
    def is_product(self) -> bool:
        """Whether matrix products on tensor cores are what the kernel is for."""
        if self.parts:
            return self.leads("tensor", by=0.4)
        return self.uses_tensor_cores and self.use("dram") < 0.5 and self.use("arithmetic") < 0.5

    @cached_property
    def product_on_tensor_cores(self) -> float | None:
        """Milliseconds that the products done on ordinary units would take, as accurate, on tensor cores."""
        best = compute_peak(self.gpu, "fp32")
        if self.work is None or not self.work.product_flops or best <= self.gpu.peaks["fp32"]:
            return None
        return self.work.product_flops / (best * self.constants.tensor) * 1e3
