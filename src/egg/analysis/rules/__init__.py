"""The limiters as rules: each a small function from a kernel's view to a finding; and what explains what.

A rule speaks for one limiter. It looks at counters where there are any, else at resources, work,
the model's parts and the time, and says what would be gained without its limiter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from egg.analysis.rules import parallel, walls, waste
from egg.analysis.rules.finding import Finding, bounded
from egg.analysis.rules.view import KernelView
from egg.core.bottleneck import Limiter

Rule = Callable[[KernelView], Finding | None]

RULES: Mapping[Limiter, Rule] = MappingProxyType(
    {
        Limiter.LAUNCH: parallel.launch,
        Limiter.SPILLS: waste.spills,
        Limiter.SMALL_GRID: parallel.small_grid,
        Limiter.TAIL: parallel.tail,
        Limiter.UNCOALESCED: waste.uncoalesced,
        Limiter.TENSOR_IDLE: waste.tensor_idle,
        Limiter.BANK_CONFLICTS: waste.bank_conflicts,
        Limiter.NARROW: waste.narrow,
        Limiter.SYNCHRONIZATION: parallel.synchronization,
        Limiter.OCCUPANCY_REGISTERS: parallel.occupancy_by_registers,
        Limiter.OCCUPANCY_SHARED: parallel.occupancy_by_shared,
        Limiter.TENSOR: walls.tensor,
        Limiter.SPECIAL: walls.special,
        Limiter.FMA: walls.fma,
        Limiter.L2: walls.l2,
        Limiter.DRAM: walls.dram,
        Limiter.LATENCY: parallel.latency,
    }
)
"""Causes before what they cause: of two equal gains the first counts."""

WALLS = frozenset({Limiter.DRAM, Limiter.L2, Limiter.TENSOR, Limiter.FMA, Limiter.SPECIAL})

_L = Limiter
EXPLAINS: Mapping[Limiter, frozenset[Limiter]] = MappingProxyType(
    {
        _L.LAUNCH: frozenset(Limiter) - {_L.LAUNCH},
        _L.SPILLS: frozenset(
            {
                _L.DRAM,
                _L.L2,
                _L.LATENCY,
                _L.TENSOR_IDLE,
                _L.OCCUPANCY_REGISTERS,
                _L.NARROW,
                _L.SYNCHRONIZATION,
            }
        ),
        _L.SMALL_GRID: frozenset({_L.LATENCY, _L.TENSOR_IDLE, _L.TAIL, _L.SYNCHRONIZATION}),
        _L.TAIL: frozenset({_L.DRAM, _L.L2, _L.LATENCY, _L.TENSOR_IDLE}),
        _L.UNCOALESCED: frozenset(
            {
                _L.DRAM,
                _L.L2,
                _L.LATENCY,
                _L.NARROW,
                _L.OCCUPANCY_REGISTERS,
                _L.OCCUPANCY_SHARED,
                _L.TENSOR_IDLE,
            }
        ),
        _L.TENSOR_IDLE: frozenset({_L.FMA, _L.L2, _L.LATENCY, _L.BANK_CONFLICTS, _L.SYNCHRONIZATION}),
        _L.BANK_CONFLICTS: frozenset({_L.L2, _L.LATENCY, _L.SYNCHRONIZATION}),
        _L.NARROW: frozenset({_L.DRAM, _L.FMA, _L.L2, _L.LATENCY, _L.TENSOR_IDLE}),
        _L.SYNCHRONIZATION: frozenset({_L.LATENCY}),
        _L.OCCUPANCY_REGISTERS: frozenset({_L.DRAM, _L.L2, _L.LATENCY, _L.TENSOR_IDLE}),
        _L.OCCUPANCY_SHARED: frozenset({_L.DRAM, _L.L2, _L.LATENCY, _L.TENSOR_IDLE}),
        _L.SPECIAL: frozenset({_L.FMA}),
    }
)
"""What a cause makes look like a limiter of its own: a wall that it raises, or one that is not quite reached
because of it, or idleness."""

__all__ = ["EXPLAINS", "RULES", "WALLS", "Finding", "KernelView", "Rule", "bounded"]
