"""What is known of a program and its target before any kernel exists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramFacts:
    """One forward pass at the task's own size."""

    flops: float
    """Of products and convolutions."""
    least_bytes: int
    """Inputs, parameters and outputs once each."""
    shapes: tuple[str, ...]
    """Inputs, parameters and outputs, each as ``name dtype[16384, 1024]``."""
    operations: tuple[str, ...]
    """What eager PyTorch executes, in order, each as ``aten.add [4096, 2048]``."""


@dataclass(frozen=True)
class GpuFacts:
    """The GPU that is written for; sizes in bytes, rates per second."""

    name: str
    arch: str
    sms: int
    shared_per_block: int
    registers_per_sm: int
    l2_bytes: int
    bandwidth: float
    peak_flops: float
    """Of the fastest unit that reaches the declared precision."""
    floor_milliseconds: float | None
    """No program can do the task's work faster; ``None`` where the work is not known."""


@dataclass(frozen=True)
class Facts:
    """Program and target; ``program`` is ``None`` where the task could not be run on fake tensors."""

    gpu: GpuFacts
    program: ProgramFacts | None
