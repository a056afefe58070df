"""How long a kernel should take on a GPU, from its grid, its resources and its work. Always predicted.

The model an expert has in mind. A launch asks every part of the machine for something; each
part has a rate; the slowest part decides, and the others hide behind it, though not perfectly:
the parts are joined by a norm that lies a little above their maximum. Where an SM has one program
at a time, which loads all it needs, then computes, then stores, nothing hides: the parts nearly add up.

- ``dram``: the distinct bytes, and what of the repeated ones no longer lies in L2, over the
  memory's bandwidth; an SM alone draws only so much, so few busy SMs get less of it.
- ``l2``: every sector the programs ask for, over the bandwidth between L2 and the SMs.
- ``copies``: the same where asynchronous copies move four bytes at a time, which is how an
  operand is turned around on its way into shared memory, and slow.
- ``tensor``, ``product``, ``arithmetic``, ``special``: operations over the rate of their unit.
  Units belong to an SM, so the SM with the most programs decides, not the average one.
- ``issue``: every instruction takes a slot of a scheduler, whatever it does: addresses, masks
  and loops too. How many are executed follows from how many there are and from the trips.
- ``dependence``: one warp cannot fill those slots by itself, as each instruction waits for the
  one before; so few warps take longer.
- ``atomic``: read-modify-write operations, which L2 does one by one.
- ``spills``: what goes to local memory and comes back, once per trip through the inner loop.
- ``latency``: what one program waits for its own loads, trip by trip, times the number of
  rounds in which the grid passes through the GPU. Copies that run ahead (software pipelining)
  and several resident programs hide it.
- ``dispatch``: programs are handed to SMs about one per clock, whatever they do.
- ``launch``: the fixed cost of a kernel.

The constants are shares of what a data sheet promises, fitted to measurements on one GPU (see
docs/prediction.md for the data and the errors); they are ratios, so that other cards can be
predicted with them, less surely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from egg.analysis.occupancy import programs, residency
from egg.core.resources import Access, KernelResources, KernelWork
from egg.hardware.gpus import Gpu


@dataclass(frozen=True)
class Constants:
    """What hardware gives to real kernels, as shares and in seconds."""

    launch: float = 3.6e-6
    """Seconds from the end of one kernel to the first instruction of the next, its draining included."""
    dram: float = 0.88
    """Of the data sheet's bandwidth."""
    sm_bytes_per_clock: float = 20.5
    """That one SM draws from L2 or beyond, at the most."""
    l2_bytes_per_clock: float = 36.0
    """Per SM when all of them draw from L2."""
    asked_together: float = 0.75
    """Of the sectors that the programs of a matrix product ask for, those that reach L2."""
    l2_kept: float = 0.89
    """Part of L2 in which data survives until it is asked for again."""
    missed: float = 0.45
    """Of the repeated requests for a tensor that does not fit, those that miss L2."""
    tensor: float = 0.85
    """Of the tensor cores' peak, for warp-group instructions."""
    tensor_by_warp: float = 0.2
    """The same where the older instructions of one warp are used on a GPU that has warp-group ones."""
    product: float = 0.78
    """Of the FMA peak, for matrix products without tensor cores."""
    arithmetic: float = 1.0
    """Of the FMA peak, for what is not a product: some of it is not fused."""
    special_per_clock: float = 16.0
    """Exponentials and the like per clock and SM."""
    special_instructions: float = 6.8
    """Ordinary instructions that one of them needs besides."""
    warp_per_clock: float = 0.18
    """Instructions that a warp issues per clock while it waits for its own addresses and loads."""
    dense_per_clock: float = 0.55
    """The same where nothing but arithmetic on many elements is to be done."""
    local_bytes_per_clock: float = 19.0
    """Per SM, to and from spilled registers."""
    narrow_bytes_per_clock: float = 9.7
    """Per SM, by asynchronous copies of four bytes."""
    dispatched_per_clock: float = 0.87
    """Programs that are started per clock on the whole GPU."""
    atomics_per_clock: float = 0.6
    """Read-modify-write operations per clock and SM."""
    latency_dram: float = 350e-9
    latency_l2: float = 470e-9
    unrolled: float = 3.8
    """Trips that the compiler takes together in a loop without barriers."""
    start: float = 0.35e-6
    """Seconds a program takes for its first instruction, its arguments and its last store."""
    joined: float = 3.0
    """Exponent of the norm that joins the parts: 1 adds them up, infinity takes the largest."""
    alone: float = 1.1
    """The same where an SM has one program that loads, computes and stores in turn."""


FITTED = Constants()

SCHEDULERS = 4
"""Of an SM; each issues one instruction per clock."""
NARROW_COPY = 32
"""Bits per thread."""
ATOMIC_BYTES = 4
"""Of one read-modify-write operation, usually."""


@dataclass(frozen=True)
class Predicted:
    """Of one launch, in milliseconds: the whole, and what each part of the machine would need alone."""

    milliseconds: float
    floor_milliseconds: float
    """The least that any kernel doing this work could take."""
    parts: Mapping[str, float]
    """By part, as this module tells them; the slowest decides."""
    tail: float
    """Factor by which the last, partly empty wave and uneven programs stretch what SMs do; at least 1."""


def predict(kernel: KernelResources, gpu: Gpu, constants: Constants = FITTED) -> Predicted | None:
    """One launch of ``kernel`` on ``gpu``; ``None`` where its work is not known."""
    if kernel.work is None:
        return None
    launch = _Launch(kernel, kernel.work, gpu, constants)
    parts = launch.seconds()
    joined = constants.alone if launch.in_turn() else constants.joined
    at_work = sum(t**joined for t in parts.values()) ** (1.0 / joined)
    return Predicted(
        milliseconds=(constants.launch + at_work) * 1e3,
        floor_milliseconds=launch.floor() * 1e3,
        parts={"launch": constants.launch * 1e3, **{name: t * 1e3 for name, t in parts.items()}},
        tail=launch.stretch,
    )


class _Launch:
    """One launch on one GPU: how its programs lie on the SMs, and what each part of the machine needs."""

    def __init__(self, kernel: KernelResources, work: KernelWork, gpu: Gpu, constants: Constants) -> None:
        self.kernel, self.work, self.gpu, self.constants = kernel, work, gpu, constants
        self.programs = programs(kernel)
        self.held = max(1, residency(kernel, gpu).blocks)
        self.busy_sms = min(gpu.sms, self.programs)
        most = math.ceil(self.programs / gpu.sms)
        self.stretch = max(most * gpu.sms / self.programs, self._uneven())
        """Of the busiest SM against the mean over all of them."""

    def _uneven(self) -> float:
        """The busiest program against the time of all others: it matters where few programs share an SM."""
        rounds = max(1.0, self.programs / self.gpu.sms)
        return max(1.0, self.work.imbalance / rounds)

    def in_turn(self) -> bool:
        """Whether nothing hides behind anything: one program has an SM to itself, barriers keep its warps in
        step, and its loop has fewer trips than stages, so that no load is under way while it computes."""
        mix = self.kernel.instructions
        return (
            self.held == 1
            and self.programs > self.gpu.sms
            and mix is not None
            and mix.barriers > 0
            and mix.async_copies > 0
            and self.work.iterations < self.kernel.num_stages
        )

    def seconds(self) -> dict[str, float]:
        sm_seconds = self._sm_seconds()
        return {
            "dram": self._dram(),
            "l2": self._l2(),
            "copies": self._copies(),
            "dispatch": self.programs / (self.constants.dispatched_per_clock * self.gpu.clock),
            **{name: seconds * self.stretch for name, seconds in sm_seconds.items()},
            "dependence": self._dependence(),
            "latency": self._latency(),
        }

    def _dram(self) -> float:
        drawn = self.busy_sms * self.constants.sm_bytes_per_clock * self.gpu.clock
        return self.traffic() / min(self.gpu.bandwidth * self.constants.dram, drawn)

    def traffic(self) -> float:
        """Bytes that cross the memory bus: each tensor once, and repeats that L2 no longer holds."""
        return sum(self._crossing(accesses) for accesses in self._by_tensor().values())

    def _by_tensor(self) -> dict[tuple[str, bool], list[Access]]:
        grouped: dict[tuple[str, bool], list[Access]] = {}
        for index, access in enumerate(self.work.accesses):
            grouped.setdefault((access.argument or f"?{index}", access.store), []).append(access)
        return grouped

    def _crossing(self, accesses: list[Access]) -> float:
        moved = sum(a.sector_bytes * a.scattered for a in accesses)
        size = max(a.argument_bytes for a in accesses) if accesses[0].argument else 0.0
        if not size or moved <= size:
            return moved
        survives = min(1.0, self.constants.l2_kept * self.gpu.l2_bytes / size)
        return size + (moved - size) * self.constants.missed * (1.0 - survives)

    def _l2(self) -> float:
        """Programs of a product run through the same operands side by side, and ask for them together."""
        c = self.constants
        reaching = c.asked_together if self.work.tensor_flops or self.work.product_flops else 1.0
        drawn = self.busy_sms * c.l2_bytes_per_clock * self.gpu.clock
        return self.work.sector_bytes * reaching / drawn

    def _copies(self) -> float:
        mix = self.kernel.instructions
        if mix is None or not 0 < mix.narrowest_copy_bits <= NARROW_COPY:
            return 0.0
        moved = self.busy_sms * self.constants.narrow_bytes_per_clock * self.gpu.clock
        return self.work.sector_bytes / moved

    def _sm_seconds(self) -> dict[str, float]:
        """What the units of the SMs need when every SM has the same to do."""
        c, work = self.constants, self.work
        vector = self.gpu.vector.get("fp32", self.gpu.peaks["fp32"])
        specials = self.gpu.sms * self.gpu.clock * c.special_per_clock
        ordinary = work.flops + work.special * c.special_instructions
        return {
            "tensor": sum(flops / self._tensor_rate(p) for p, flops in work.tensor_flops.items()),
            "product": work.product_flops / (vector * c.product),
            "arithmetic": ordinary / (vector * c.arithmetic),
            "special": work.special / specials,
            "spills": self._spills(),
            "issue": self._executed() / (self.gpu.sms * SCHEDULERS * self.gpu.clock),
            "atomic": self._atomic(),
        }

    def _tensor_rate(self, precision: str) -> float:
        peak = self.gpu.tensor.get(precision) or self.gpu.vector.get("fp32", self.gpu.peaks["fp32"])
        return peak * (self.constants.tensor if self._by_warp_group() else self.constants.tensor_by_warp)

    def _by_warp_group(self) -> bool:
        """Whether the fast matrix instructions are used, on a GPU that knows two kinds."""
        mix = self.kernel.instructions
        return self.gpu.arch not in ("sm_90", "sm_100") or mix is None or mix.warp_group > 0

    def _spills(self) -> float:
        """Every spilled byte is written and read back once per trip."""
        threads = self.programs * max(1, self.kernel.num_warps) * self.gpu.warp_size
        moved = 2.0 * max(0, self.kernel.spill_bytes) * threads * max(1.0, self.work.iterations)
        return moved / (self.gpu.sms * self.constants.local_bytes_per_clock * self.gpu.clock)

    def _executed(self) -> float:
        """Instructions of all warps of the launch."""
        return self._by_one_warp() * max(1, self.kernel.num_warps) * self.programs

    def _by_one_warp(self) -> float:
        mix = self.kernel.instructions
        return mix.total + mix.looped * max(0.0, self.work.iterations - 1.0) if mix is not None else 0.0

    def _dependence(self) -> float:
        """Rounds of the grid through the GPU, times what one warp needs for its own instructions."""
        mix, c = self.kernel.instructions, self.constants
        dense = mix.arithmetic / max(1, mix.total) if mix is not None else 0.0
        per_clock = c.warp_per_clock + dense * (c.dense_per_clock - c.warp_per_clock)
        return self._rounds() * self._by_one_warp() / (per_clock * self.gpu.clock)

    def _rounds(self) -> float:
        """In which the grid passes through the GPU, the busiest program counted for what it is."""
        rounds = max(1.0, self.programs / (self.gpu.sms * self.held))
        return rounds * max(1.0, self.work.imbalance / rounds)

    def _atomic(self) -> float:
        operations = sum(a.bytes for a in self.work.accesses if a.atomic) / ATOMIC_BYTES
        return operations / (self.gpu.sms * self.constants.atomics_per_clock * self.gpu.clock)

    def _latency(self) -> float:
        """Rounds of the grid through the GPU, times what one program waits for itself."""
        c, work = self.constants, self.work
        in_l2 = work.distinct_bytes <= c.l2_kept * self.gpu.l2_bytes
        wait = c.latency_l2 if in_l2 and work.loaded_bytes > 2 * work.distinct_bytes else c.latency_dram
        ahead = self._ahead()
        one = c.start + wait + work.waits * wait / ahead
        return self._rounds() * one

    def _ahead(self) -> float:
        """Trips whose loads are on their way at once: by pipelining, or unrolled where nothing is shared."""
        mix = self.kernel.instructions
        if mix is None:
            return 1.0
        if mix.async_copies:
            return max(1.0, self.kernel.num_stages - 1.0)
        return self.constants.unrolled if not mix.barriers and mix.looped else 1.0

    def floor(self) -> float:
        """Distinct bytes and operations at the data sheet's best."""
        work, gpu = self.work, self.gpu
        vector = gpu.vector.get("fp32", gpu.peaks["fp32"])
        tensor = sum(flops / (gpu.tensor.get(p) or vector) for p, flops in work.tensor_flops.items())
        ordinary = max(work.product_flops, work.flops + work.special) / vector
        return max(work.distinct_bytes / gpu.bandwidth, tensor, ordinary)
