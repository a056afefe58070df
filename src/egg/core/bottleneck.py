"""What holds a kernel back: one limiter, the numbers that say so, and what would prove them wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from egg.core.profile import Rung


class Limiter(StrEnum):
    """The one thing that, removed, would save the most time."""

    LAUNCH = "launch"
    """Launches cost more than the kernels."""
    DRAM = "dram"
    """Memory bandwidth is used up: only fewer bytes help."""
    L2 = "l2"
    """The way between L2 and the SMs is used up: the same bytes are fetched again and again."""
    TENSOR = "tensor"
    """Tensor cores are busy: only fewer or cheaper products help."""
    TENSOR_IDLE = "tensor_idle"
    """Products are done without the tensor cores, or on ones that wait."""
    FMA = "fma"
    """The ordinary arithmetic units are busy."""
    SPECIAL = "special"
    """Exponentials, roots and divisions are what the kernel waits for."""
    OCCUPANCY_REGISTERS = "occupancy_registers"
    OCCUPANCY_SHARED = "occupancy_shared"
    SMALL_GRID = "small_grid"
    """Fewer programs than the GPU has room for."""
    SPILLS = "spills"
    UNCOALESCED = "uncoalesced"
    """Neighbouring threads touch different sectors."""
    NARROW = "narrow"
    """Accesses are contiguous, but a few bytes at a time."""
    BANK_CONFLICTS = "bank_conflicts"
    TAIL = "tail"
    """The last wave of programs leaves most of the GPU empty, or few programs have most of the work."""
    LATENCY = "latency"
    """Nothing is used up: each program waits for its own loads."""
    SYNCHRONIZATION = "synchronization"
    """Barriers, fences, or atomics on the same address."""


MEANINGS: Mapping[Limiter, str] = MappingProxyType(
    {
        Limiter.LAUNCH: "launches cost more than the kernels do: fewer kernels, or a captured graph",
        Limiter.DRAM: "memory bandwidth is used up: only fewer bytes help",
        Limiter.L2: "the way between L2 and the SMs is used up: the same bytes are fetched again and again",
        Limiter.TENSOR: "the tensor cores are busy: only fewer or cheaper products help",
        Limiter.TENSOR_IDLE: "products are done without the tensor cores, or on ones that wait",
        Limiter.FMA: "the ordinary arithmetic units are busy",
        Limiter.SPECIAL: "exponentials, roots and divisions are what it waits for",
        Limiter.OCCUPANCY_REGISTERS: "registers let too few warps stay on an SM to hide what they wait for",
        Limiter.OCCUPANCY_SHARED: "shared memory lets too few warps stay on an SM to hide what they wait for",
        Limiter.SMALL_GRID: "fewer programs than the GPU has room for",
        Limiter.SPILLS: "registers spill to memory and come back",
        Limiter.UNCOALESCED: "neighbouring threads touch different sectors of memory",
        Limiter.NARROW: "accesses are contiguous, but a few bytes at a time",
        Limiter.BANK_CONFLICTS: "threads of a warp wait for the same bank of shared memory",
        Limiter.TAIL: "the last programs leave most of the GPU empty",
        Limiter.LATENCY: "nothing is used up: each program waits for its own loads",
        Limiter.SYNCHRONIZATION: "barriers, fences, or atomics on the same address",
    }
)
"""Each limiter in a few words, for people."""


@dataclass(frozen=True)
class Evidence:
    """One number, and what it says."""

    name: str
    value: float
    unit: str
    says: str


@dataclass(frozen=True)
class Suspect:
    """A limiter that was considered: how much faster the kernel could be without it (1 is not at all)."""

    limiter: Limiter
    gain: float


@dataclass(frozen=True)
class Bottleneck:
    """The primary limiter of one kernel, or of the whole program (``kernel`` is empty)."""

    kernel: str
    limiter: Limiter
    gain: float
    """How many times faster it would be without the limiter, estimated; at least 1."""
    headroom: float | None
    """Its time over the least that its work could take; ``None`` where the work is not known."""
    share: float
    """Of the program's time, 0 to 1."""
    evidence: tuple[Evidence, ...]
    unless: str
    """What would have to be true for this to be wrong."""
    suspects: tuple[Suspect, ...] = ()
    """The others, most promising first."""
    own: bool = True
    """Whether it is a kernel of the candidate, or the whole; else a library's."""
    milliseconds: float | None = None
    """Its time as measured; ``None`` where it was not, and then the share is modelled."""

    @property
    def known(self) -> bool:
        """Whether the limiter says anything: of a kernel that only its time is known of, it does not."""
        return self.gain >= 1.005 or self.headroom is not None


Value = float | int | bool | str


@dataclass(frozen=True)
class Diagnosed:
    """A profile, read: the whole, each kernel, and the numbers it was read from."""

    rung: Rung
    whole: Bottleneck
    kernels: tuple[Bottleneck, ...]
    """In the order of the profile."""
    features: Mapping[str, Value]
    """Of the kernel with the largest share and of the whole, by name; the names are a vocabulary."""
