"""Values of a row that tables and pages show beside the verdict and the times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from egg.core.resources import KernelResources

MOST_KINDS = 8
"""Kinds of kernels that a row names; a network may have a hundred groups."""


@dataclass(frozen=True)
class Structure:
    """What an accepted kernel file is made of, and the moves and repairs that led to it."""

    kernels: int
    """Kernels that ran, each counted once."""
    kinds: tuple[str, ...] = ()
    """What its groups of operations do, each kind once with its count: ``one pass (x2)``."""
    left: str = ""
    """Operations that stay PyTorch calls; empty where none does."""
    moves: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepOutcome:
    """What one step of the search after the first kernel came to."""

    stage: str
    decision: str
    gain: float | None = None
    """Over the kernel before; ``None`` where nothing was timed."""


@dataclass(frozen=True)
class LargestResources:
    """The most that any kernel of a file takes, by the compiler."""

    registers: int
    spill_bytes: int
    shared_bytes: int

    @classmethod
    def of(cls, kernels: Iterable[KernelResources]) -> LargestResources | None:
        found = list(kernels)
        if not found:
            return None
        return cls(
            max(kernel.registers for kernel in found),
            max(kernel.spill_bytes for kernel in found),
            max(kernel.shared_bytes for kernel in found),
        )


def counted(kinds: Iterable[str]) -> tuple[str, ...]:
    """Each kind once, in the order of its first appearance, with how often it appears."""
    found = list(kinds)
    return tuple(f"{kind} (x{n})" if (n := found.count(kind)) > 1 else kind for kind in dict.fromkeys(found))
