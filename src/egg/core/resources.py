"""What is known of one kernel without running it: resources, instructions, and the work it is asked for.

Three sources, in the order they become known. The *launch* gives the grid and the arguments.
*Triton's IR* at those arguments gives the work: how many bytes all programs ask for, how many
operations they do. The *machine code* gives registers, spills and the mix of instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SECTOR_BYTES = 32
"""What caches move at least."""
GRANULE_BYTES = 64
"""What memory hands out at least."""


@dataclass(frozen=True)
class InstructionMix:
    """How often each kind of instruction stands in the machine code (not how often it is executed)."""

    total: int
    tensor_core: int
    arithmetic: int
    """Floating-point multiplies, adds and both fused, on the ordinary units."""
    special: int
    """Exponentials, logarithms, reciprocals, square roots."""
    global_loads: int
    global_stores: int
    shared_loads: int
    shared_stores: int
    local: int
    """Loads and stores of spilled registers."""
    async_copies: int
    """From global to shared memory without registers: ``cp.async`` and the copy engine."""
    atomics: int
    barriers: int
    shuffles: int
    narrowest_load_bits: int
    """Per thread; 0 where nothing is loaded from global memory through registers."""
    widest_store_bits: int
    warp_group: int = 0
    """Of the tensor-core instructions, those of a whole warp group (``HGMMA`` and its kind)."""
    looped: int = 0
    """Instructions inside a loop."""
    narrowest_copy_bits: int = 0
    """Per thread, of the asynchronous copies; 0 where there are none, 128 for the copy engine's."""


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of Triton's IR, over all programs of a launch."""

    argument: str
    """The kernel parameter it points into; empty where that is not known."""
    store: bool
    bytes: float
    """Asked for by all programs together, masked-off elements not counted."""
    sector_bytes: float
    """The same, each request counted with all of the 32-byte sectors it touches."""
    argument_bytes: float
    """Size of the tensor it points into: distinct bytes cannot be more. 0 where not known."""
    atomic: bool = False
    scattered: float = 1.0
    """How many times more memory hands out than sectors are asked for: up to 2 where sectors lie alone."""


@dataclass(frozen=True)
class KernelWork:
    """What one launch asks of the GPU, counted in Triton's IR with the launch's actual arguments.

    Loops are followed with their real trip counts in a sample of programs, and the sample
    stands for the grid. Where a count depends on data, one trip is counted and ``complete`` is
    false.
    """

    tensor_flops: Mapping[str, float]
    """Of matrix products on tensor cores, by the precision of the operands: ``fp16``, ``tf32``..."""
    product_flops: float
    """Of matrix products that tensor cores do not take: fp32 (``ieee``) and fp64."""
    flops: float
    """Of everything else: additions, multiplications, comparisons, one each."""
    special: float
    """Exponentials, logarithms, roots, divisions."""
    accesses: tuple[Access, ...]
    iterations: float
    """Trips through the innermost loops of one program; 1 where there is no loop."""
    imbalance: float = 1.0
    """Work of the busiest sampled program over the mean."""
    waits: float = 0.0
    """Of the iterations, those that load from global memory."""
    complete: bool = True

    @property
    def loaded_bytes(self) -> float:
        return sum(a.bytes for a in self.accesses if not a.store)

    @property
    def stored_bytes(self) -> float:
        return sum(a.bytes for a in self.accesses if a.store)

    @property
    def sector_bytes(self) -> float:
        """What the requests move between L1 and L2, whole sectors, without hits in L1."""
        return sum(a.sector_bytes for a in self.accesses)

    @property
    def sector_efficiency(self) -> float:
        """Share of the moved sectors that was asked for; 1 is perfectly coalesced."""
        moved = self.sector_bytes
        return min(1.0, (self.loaded_bytes + self.stored_bytes) / moved) if moved else 1.0

    @property
    def distinct_bytes(self) -> float:
        """What must cross the memory bus at least: each tensor's bytes once for reading, once for writing."""
        distinct = 0.0
        for store in (False, True):
            by_argument: dict[str, list[Access]] = {}
            for access in self.accesses:
                if access.store is store:
                    by_argument.setdefault(access.argument, []).append(access)
            for name, accesses in by_argument.items():
                asked = sum(a.bytes for a in accesses)
                size = max(a.argument_bytes for a in accesses)
                distinct += min(asked, size) if name and size else asked
        return distinct

    @property
    def total_flops(self) -> float:
        return sum(self.tensor_flops.values()) + self.product_flops + self.flops + self.special


@dataclass(frozen=True)
class KernelResources:
    """What the compiler says of one kernel at one launch configuration."""

    name: str
    grid: tuple[int, ...]
    registers: int
    spill_bytes: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    tensor_core_instructions: int
    widest_load_bits: int
    launches: int = 1
    code: str = ""
    """Hash of the machine code without names and debug information; empty where it was not at hand."""
    instructions: InstructionMix | None = None
    work: KernelWork | None = field(default=None)
    """Of the largest of these launches; ``None`` where the IR could not be followed."""
