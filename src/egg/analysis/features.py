"""The vocabulary in which skill gates speak: typed numbers of a profile, by name.

Every name is always there, so a gate never meets an unknown one. A number that is not known has
the *neutral* value of its entry: what a kernel without that trouble has. So ignorance fires no
gate that looks for trouble, and a condition that needs to be sure adds one of the four ``knows_`` names:

- ``knows_times``: a GPU ran it; ``milliseconds`` is measured, else predicted.
- ``knows_counters``: hardware counters of the leading kernel; stalls, conflicts and cycles need them.
- ``knows_resources``: the compiler's numbers of the leading kernel.
- ``knows_work``: the leading kernel's work was counted.

Shares of units come from counters, else from the model (``knows_work``). No value is ever NaN,
infinite or missing. The *leading* kernel is the one with the largest share of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from egg.analysis.rules.view import KernelView
from egg.core.bottleneck import Bottleneck, Limiter, Value
from egg.core.profile import Counter, Profile

Kind = Literal["number", "integer", "truth", "word"]


@dataclass(frozen=True)
class Feature:
    """One name of the vocabulary."""

    kind: Kind
    unit: str
    meaning: str
    neutral: Value

    def typed(self, value: Value | None) -> Value:
        """The value as its kind; the neutral one where it is missing or no number."""
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return self.neutral
        match self.kind:
            case "number":
                return float(value)
            case "integer":
                return int(value)
            case "truth":
                return bool(value)
            case "word":
                return str(value)


def number(unit: str, meaning: str, neutral: float = 0.0) -> Feature:
    return Feature("number", unit, meaning, float(neutral))


def integer(unit: str, meaning: str, neutral: int = 0) -> Feature:
    return Feature("integer", unit, meaning, neutral)


def truth(meaning: str) -> Feature:
    return Feature("truth", "", meaning, False)


def word(meaning: str, neutral: str) -> Feature:
    return Feature("word", "", meaning, neutral)


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        # the whole program
        "rung": word("how it was seen: counters, times, resources or model", "model"),
        "knows_times": truth("a GPU ran the program"),
        "knows_counters": truth("the leading kernel has hardware counters"),
        "knows_resources": truth("the compiler's numbers of the leading kernel are known"),
        "knows_work": truth("bytes and operations of the leading kernel are known"),
        "limiter": word("primary limiter of the whole program", Limiter.LATENCY.value),
        "kernel_limiter": word("primary limiter of the leading kernel", Limiter.LATENCY.value),
        "gain": number("x", "how much faster the program would be without its limiter", 1.0),
        "kernels": integer("", "different kernels"),
        "own_kernels": integer("", "of these, written by the candidate"),
        "launches": integer("", "of kernels in one forward pass"),
        "library_share": number("share", "of the time in kernels that are not the candidate's own"),
        "leading_share": number("share", "of the time in the leading kernel"),
        "gap_share": number("share", "of the span in which no kernel ran"),
        "milliseconds": number("ms", "of the whole: measured, else predicted"),
        "floor_milliseconds": number("ms", "the least the task could take; 0 where not known"),
        "headroom": number("x", "time over floor", 1.0),
        # units of the machine
        "dram_share": number("share", "of memory's bandwidth in use"),
        "l2_share": number("share", "of L2's bandwidth in use"),
        "l1_share": number("share", "of L1's throughput in use"),
        "lsu_share": number("share", "of the load and store pipe in use"),
        "tensor_share": number("share", "of the tensor cores in use"),
        "fma_share": number("share", "of the ordinary arithmetic units in use"),
        "special_share": number("share", "of the special-function units in use"),
        "issue_share": number("share", "of the cycles in which a scheduler issued"),
        "l2_hit_rate": number("share", "of the requests to L2, answered there"),
        # residency and grid
        "grid": integer("programs", "of one launch"),
        "waves": number("", "how many times one launch fills the GPU", 1.0),
        "last_wave_fill": number("share", "of the GPU in use in the last wave", 1.0),
        "programs_per_sm": number("", "programs of one launch over the GPU's SMs", 1.0),
        "occupancy": number("share", "of an SM's warps resident: achieved, else allowed", 1.0),
        "occupancy_limit": number("share", "of an SM's warps that the resources allow", 1.0),
        "occupancy_limited_by": word("registers, shared, warps, slots, or none where not known", "none"),
        "imbalance": number("x", "work of the busiest program over the mean", 1.0),
        "sm_evenness": number("share", "busy cycles of the mean SM over the busiest", 1.0),
        # the compiler's numbers
        "registers": integer("", "per thread"),
        "spill_bytes": integer("B", "per thread"),
        "shared_bytes": integer("B", "per program"),
        "num_warps": integer("", "per program", 4),
        "num_stages": integer("", "of software pipelining", 1),
        "tensor_core_instructions": integer("", "in the machine code"),
        "warp_group_instructions": integer("", "of these, of a whole warp group"),
        "widest_load_bits": integer("bit", "per thread and load", 128),
        "narrowest_load_bits": integer("bit", "per thread and load", 128),
        "widest_store_bits": integer("bit", "per thread and store", 128),
        "async_copies": integer("", "copies to shared memory without registers, in the machine code"),
        "barriers": integer("", "in the machine code"),
        "atomics": integer("", "in the machine code"),
        # memory access
        "sector_efficiency": number("share", "of the bytes in the touched sectors that was asked for", 1.0),
        "traffic_ratio": number("x", "bytes over the memory bus over the distinct ones", 1.0),
        "reread_ratio": number("x", "bytes asked of L2 over the distinct ones", 1.0),
        "distinct_bytes": number("B", "that one launch must move at least"),
        "bank_conflict_share": number(
            "share", "of the passes through shared memory that only conflicts cause"
        ),
        "local_share": number("share", "of the executed instructions that move spilled registers"),
        # work
        "tensor_flops": number("FLOP", "of products on tensor cores"),
        "product_flops": number("FLOP", "of products on ordinary units"),
        "other_flops": number("FLOP", "of everything that is not a product"),
        "special_operations": number("", "exponentials, roots, divisions"),
        "arithmetic_intensity": number("FLOP/B", "operations over distinct bytes"),
        "iterations": number("", "trips through the inner loop of one program", 1.0),
        # what warps wait for
        "stall_memory": number("share", "of a warp's time: data from global or local memory"),
        "stall_shared": number("share", "of a warp's time: shared memory and special functions"),
        "stall_barrier": number("share", "of a warp's time: a barrier"),
        "stall_fence": number("share", "of a warp's time: a memory fence"),
        "stall_queue": number("share", "of a warp's time: full queues of the memory pipes"),
        "stall_math": number("share", "of a warp's time: a busy arithmetic pipe"),
        "stall_tensor": number("share", "of a warp's time: a matrix instruction of the warp group"),
        "stall_fixed": number("share", "of a warp's time: the instruction before"),
        "stall_fetch": number("share", "of a warp's time: instructions to execute"),
    }
)


def features(
    profile: Profile,
    leading: KernelView | None,
    *,
    whole: Bottleneck,
    kernel_limiter: Limiter,
    floor_milliseconds: float | None = None,
) -> Mapping[str, Value]:
    """Every name of :data:`FEATURES` with its value for this profile and its leading kernel."""
    known: dict[str, Value | None] = {
        **_of_the_whole(profile, whole, floor_milliseconds),
        "kernel_limiter": kernel_limiter.value,
    }
    if leading is not None:
        known |= _of_units(leading) | _of_the_grid(leading) | _of_resources(leading) | _of_work(leading)
    return {name: feature.typed(known.get(name)) for name, feature in FEATURES.items()}


def _of_the_whole(profile: Profile, whole: Bottleneck, floor: float | None) -> dict[str, Value | None]:
    busy = sum(k.best_milliseconds for k in profile.kernels)
    time = profile.milliseconds if profile.milliseconds is not None else profile.predicted_milliseconds
    theirs = sum(k.best_milliseconds for k in profile.kernels if not k.own)
    timed = bool(profile.kernels) and all(k.milliseconds is not None for k in profile.kernels)
    span = profile.milliseconds or 0.0
    return {
        "rung": profile.rung.value,
        "knows_times": profile.rung.measured,
        "limiter": whole.limiter.value,
        "gain": whole.gain,
        "kernels": len(profile.kernels),
        "own_kernels": sum(k.own for k in profile.kernels),
        "launches": profile.launches,
        "library_share": theirs / busy if busy else None,
        "leading_share": max((k.best_milliseconds for k in profile.kernels), default=0.0) / busy
        if busy
        else None,
        "gap_share": max(0.0, span - busy) / span if timed and span else None,
        "milliseconds": time if time is not None else busy,
        "floor_milliseconds": floor,
        "headroom": whole.headroom,
    }


def _of_units(view: KernelView) -> dict[str, Value | None]:
    names = ("dram", "l2", "l1", "lsu", "tensor", "special", "issue")
    return {
        "knows_counters": view.counted,
        **{f"{unit}_share": view.shares.get(unit) for unit in names},
        "fma_share": view.shares.get("arithmetic"),
        "l2_hit_rate": view.l2_hit_rate,
        "bank_conflict_share": view.conflict_share,
        "local_share": view.local_share,
        **{f"stall_{reason}": share for reason, share in view.stalls.items()},
    }


def _of_the_grid(view: KernelView) -> dict[str, Value | None]:
    waves, achieved = view.waves, view.counter(Counter.OCCUPANCY)
    return {
        "grid": view.grid,
        "waves": waves,
        "last_wave_fill": (waves % 1.0 or 1.0) if waves is not None else None,
        "programs_per_sm": view.grid / view.gpu.sms if view.grid is not None else None,
        "occupancy": achieved if achieved is not None else view.occupancy_limit,
        "occupancy_limit": view.occupancy_limit,
        "occupancy_limited_by": view.held[1] if view.held is not None else None,
        "imbalance": view.work.imbalance if view.work else None,
        "sm_evenness": view.evenness,
        "num_warps": view.num_warps,
    }


def _of_resources(view: KernelView) -> dict[str, Value | None]:
    kernel, mix = view.resources, view.mix
    registers, shared = view.counter(Counter.REGISTERS), view.counter(Counter.SHARED_BYTES)
    found: dict[str, Value | None] = {
        "registers": registers,
        "shared_bytes": shared,
        "knows_resources": False,
    }
    if kernel is not None:
        found |= {
            "knows_resources": True,
            "registers": kernel.registers,
            "spill_bytes": kernel.spill_bytes,
            "shared_bytes": kernel.shared_bytes,
            "num_stages": kernel.num_stages,
            "tensor_core_instructions": kernel.tensor_core_instructions,
            "widest_load_bits": kernel.widest_load_bits or None,
        }
    if mix is not None:
        found |= {
            "warp_group_instructions": mix.warp_group,
            "narrowest_load_bits": mix.narrowest_load_bits or None,
            "widest_store_bits": mix.widest_store_bits or None,
            "async_copies": mix.async_copies,
            "barriers": mix.barriers,
            "atomics": mix.atomics,
        }
    return found


def _of_work(view: KernelView) -> dict[str, Value | None]:
    work = view.work
    found: dict[str, Value | None] = {
        "sector_efficiency": view.sector_efficiency,
        "traffic_ratio": view.traffic_ratio,
        "reread_ratio": view.reread_ratio,
        "knows_work": work is not None,
    }
    if work is not None:
        distinct = work.distinct_bytes
        found |= {
            "distinct_bytes": distinct,
            "tensor_flops": view.tensor_flops,
            "product_flops": work.product_flops,
            "other_flops": work.flops,
            "special_operations": work.special,
            "arithmetic_intensity": work.total_flops / distinct if distinct else None,
            "iterations": work.iterations,
        }
    return found
