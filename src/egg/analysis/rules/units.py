"""How far a kernel uses each unit of the machine, by counters or by the model.

A unit's *share* is what a counter says: of the unit's sustained peak. Its *use* is relative to
what good kernels reach, and to the time of the busiest SM, so that 1 is a wall whatever the unit.
Without counters both are what the model says that the unit needs for the work, at the rate good
kernels reach, over the time taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

from egg.analysis.occupancy import programs, residency
from egg.analysis.predict import predict
from egg.analysis.rules.seen import SeenKernel
from egg.core.profile import Counter

UNITS = ("dram", "l2", "l1", "lsu", "tensor", "arithmetic", "issue", "special")
COUNTED: Mapping[str, tuple[Counter, ...]] = MappingProxyType(
    {
        "dram": (Counter.DRAM_SHARE,),
        "l2": (Counter.L2_SHARE,),
        "l1": (Counter.L1_SHARE,),
        "lsu": (Counter.LSU_SHARE,),
        "tensor": (Counter.TENSOR_SHARE,),
        "arithmetic": (Counter.FMA_SHARE, Counter.ALU_SHARE),
        "issue": (Counter.ISSUE_SHARE,),
        "special": (Counter.SPECIAL_SHARE,),
    }
)
SPREAD = ("product", "arithmetic", "special", "issue", "spills")
"""The model's parts of what SMs do, each stretched there by the busiest SM."""
WORKING = frozenset({"dram", "l2", "tensor", "product", "arithmetic", "special", "issue"})
"""Those of :attr:`KernelUnits.parts` that say what a kernel is about; spills are waste."""
OF_AN_SM = frozenset(UNITS) - {"dram", "l2"}
"""Counted over the cycles in which an SM had work, so that SMs without any do not lower them."""

ATTAINABLE = MappingProxyType({"dram": 0.92, "tensor": 0.75})
"""Counter readings at which good kernels stop, as shares of the hardware's sustained peak."""
ATTAINABLE_ELSEWHERE = 0.9
REREADING_HIT_RATE = 0.65
"""L2 serves data again above this. A plain copy has about one half: its reads miss, its writes hit."""


class KernelUnits(SeenKernel):
    """The units of the machine, as far as one kernel uses them."""

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Milliseconds each unit needs when the same work lies evenly on the whole GPU; empty if unknown.

        What SMs do is as much as before, without the stretch of the busiest one. Memory and L2 are
        drawn from by every SM, as by a grid that fills whole waves with the same bytes.
        """
        kernel, work, found = self.resources, self.work, self.predicted
        if kernel is None or work is None or found is None:
            return {}
        capacity = self.gpu.sms * max(1, residency(kernel, self.gpu).blocks)
        grid = (capacity * math.ceil(programs(kernel) / capacity),)
        even = predict(replace(kernel, grid=grid), self.gpu, self.constants)
        assert even is not None, "the work is known"
        return {
            **{name: even.parts[name] for name in ("dram", "l2")},
            **{name: found.parts[name] / found.tail for name in SPREAD},
            "tensor": sum(flops / self._tensor_rate(p) for p, flops in work.tensor_flops.items()) * 1e3,
        }

    def _tensor_rate(self, precision: str) -> float:
        """Of the best instructions, whichever the kernel uses: slow ones are a finding, not an excuse."""
        return (self.gpu.tensor.get(precision) or self.gpu.peaks["fp32"]) * self.constants.tensor

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """By unit, as counted, of its sustained peak; else modelled. A unit that neither knows is absent."""
        found: dict[str, float] = {}
        for unit in UNITS:
            counted = [c for name in COUNTED[unit] if (c := self.counter(name)) is not None]
            if counted:
                found[unit] = min(1.0, max(counted))
            elif (modelled := self._modelled(unit)) is not None:
                found[unit] = modelled
        return found

    def _modelled(self, unit: str) -> float | None:
        """Of the kernel's time, its launch apart, what the unit needs at the rate good kernels reach."""
        needed = self.parts.get(unit)
        if needed is None or not self.milliseconds:
            return None
        if unit == "arithmetic":
            needed = max(needed, self.parts["product"])
        if unit == "special":
            needed = max(needed, self.parts["arithmetic"] * self._for_specials())
        working = max(self.milliseconds / 2, self.milliseconds - self.launch_milliseconds)
        return min(1.0, needed / working)

    def _for_specials(self) -> float:
        """Of the ordinary instructions, those that exponentials and the like bring with them."""
        if self.work is None or not self.work.special:
            return 0.0
        brought = self.work.special * self.constants.special_instructions
        return brought / (brought + self.work.flops)

    @cached_property
    def uses(self) -> Mapping[str, float]:
        """By unit, 0 to 1: the share, relative to what good kernels reach and to the busiest SM's time."""
        found: dict[str, float] = {}
        for unit, share in self.shares.items():
            if not self.is_counted(unit):
                found[unit] = share
                continue
            share *= self.evenness if unit in OF_AN_SM else 1.0
            found[unit] = min(1.0, share / ATTAINABLE.get(unit, ATTAINABLE_ELSEWHERE))
        if "dram" in found:
            found["dram"] = max(found["dram"], self._deferred_writes(), self._missing_l2(found))
        return found

    def _deferred_writes(self) -> float:
        """Use of memory by distinct bytes: what still lies in L2 when a kernel ends is written later."""
        if self.work is None or not self.milliseconds:
            return 0.0
        needed = self.work.distinct_bytes / (self.gpu.bandwidth * self.constants.dram) * 1e3
        return min(1.0, needed / self.milliseconds)

    def _missing_l2(self, found: Mapping[str, float]) -> float:
        """L2 that is busy with misses is busy for memory."""
        hits = self.l2_hit_rate
        return found.get("l2", 0.0) if hits is not None and hits < REREADING_HIT_RATE else 0.0

    def is_counted(self, unit: str) -> bool:
        return any(self.counter(name) is not None for name in COUNTED[unit])

    def use(self, unit: str) -> float:
        return self.uses.get(unit, 0.0)

    def busiest(self, without: frozenset[str] = frozenset()) -> float:
        """The largest use among the other units."""
        return max((use for unit, use in self.uses.items() if unit not in without), default=0.0)

    def leads(self, part: str, by: float = 0.5) -> bool:
        """Whether a unit needs at least ``by`` of what the most needed one does."""
        needed = {name: t for name, t in self.parts.items() if name in WORKING}
        return bool(needed) and needed.get(part, 0.0) > 0 and needed[part] >= by * max(needed.values())
