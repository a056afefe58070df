"""What is known of a program and its target before any kernel exists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from egg.core.bottleneck import Value


class Family(StrEnum):
    """What kind of work an operator is, as far as writing a kernel for it goes."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RECURRENCE = "recurrence"
    NORMALIZATION = "normalization"
    SOFTMAX = "softmax"
    POOLING = "pooling"
    REDUCTION = "reduction"
    SCAN = "scan"
    LOSS = "loss"
    GATHER = "gather"
    """Embedding, indexing, scattering."""
    POINTWISE = "pointwise"
    MOVEMENT = "movement"
    """Copies, concatenation, padding, layout changes."""
    RANDOM = "random"
    OTHER = "other"

    @property
    def multiplies(self) -> bool:
        """Whether its operations are those of matrix products, which tensor cores take."""
        return self in (Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.RECURRENCE)


@dataclass(frozen=True)
class TensorForm:
    """A tensor without its values. ``strides`` is ``None`` where they are the usual, contiguous ones."""

    dtype: str
    """As torch writes it: ``float32``."""
    shape: tuple[int, ...]
    itemsize: int
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """That exist in memory: a dimension of stride 0 repeats, and does not hold, its elements."""
        strides = self.strides or (1,) * len(self.shape)
        held = (size for size, stride in zip(self.shape, strides, strict=True) if stride != 0)
        return math.prod(held) * self.itemsize


@dataclass(frozen=True)
class Operation:
    """One thing that eager PyTorch does, as a library does it: a recurrent layer is one operation."""

    name: str
    """``aten.addmm``."""
    family: Family
    inputs: tuple[TensorForm, ...]
    outputs: tuple[TensorForm, ...]
    flops: float
    """A multiplication and an addition are two; pointwise work counts one per element it makes."""
    bytes: int
    """That eager reads and writes for it."""
    launches: int
    """Kernels that eager launches for it, about."""
    reads: tuple[int, ...] = ()
    """Which value each of ``inputs`` is: an operation that writes a tensor makes a new value, views of it
    share one. Any beyond ``inputs`` are not read, but written over in part, and must be in memory by then."""
    writes: tuple[int, ...] = ()
    """Which value each of ``outputs`` becomes."""
    settings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Its arguments beside tensors, as far as that decides what kind of work it is: ``stride``,
    ``groups``, ``dim``; a truth is 0 or 1, arguments that were not given are not here."""


@dataclass(frozen=True)
class Workload:
    """One forward pass at the task's own size, in full."""

    inputs: Mapping[str, TensorForm]
    parameters: Mapping[str, TensorForm]
    """And buffers that hold data."""
    outputs: Mapping[str, TensorForm]
    operations: tuple[Operation, ...]
    least_bytes: int
    """Inputs, parameters and outputs once each; of a tensor that is only indexed, what is picked of it."""
    kept: tuple[int, ...] = ()
    """Values that outlive the forward: its outputs, and inputs and buffers as it leaves them."""

    @property
    def flops(self) -> float:
        """Of products, convolutions, attention and recurrences."""
        return sum(op.flops for op in self.operations if op.family.multiplies)

    @property
    def flops_by_family(self) -> dict[str, float]:
        counted: dict[str, float] = {}
        for op in self.operations:
            counted[op.family.value] = counted.get(op.family.value, 0.0) + op.flops
        return counted

    @property
    def eager_bytes(self) -> int:
        return sum(op.bytes for op in self.operations)

    @property
    def eager_launches(self) -> int:
        return sum(op.launches for op in self.operations)


@dataclass(frozen=True)
class Savings:
    """Least times of the same work under different fusion, in milliseconds on one GPU, launches included."""

    eager: float
    """Every operation by itself."""
    pointwise_fused: float
    """Pointwise work rides on the operation that feeds it, for nothing."""
    whole: float
    """Everything in one kernel: the roofline floor."""
    eager_by_family: Mapping[str, float] = field(default_factory=dict)
    """How ``eager`` is made up, by :class:`Family`."""


@dataclass(frozen=True)
class ProgramFacts:
    """One forward pass at the task's own size, as far as the writer of kernels sees it."""

    flops: float
    """Of products and convolutions."""
    least_bytes: int
    """Inputs, parameters and outputs once each; of a tensor that is only indexed, what is picked of it."""
    shapes: tuple[str, ...]
    """Inputs, parameters and outputs, each as ``name dtype[16384, 1024]``."""
    operations: tuple[str, ...]
    """What eager PyTorch executes, in order, each as ``aten.add [4096, 2048]``."""
    flops_by_family: Mapping[str, float] = field(default_factory=dict)
    """Every operation counted, by :class:`Family`."""
    eager_bytes: int = 0
    """That eager moves; 0 where it was not counted."""
    eager_launches: int = 0
    traits: Mapping[str, Value] = field(default_factory=dict)
    """What kind of products, convolutions, reductions and tensors these are, by the names in which skills
    speak; kept with a run, so that a reader of its log needs neither PyTorch nor the operations in full."""


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
    savings: Savings | None = None
    """What fusion could save here."""


@dataclass(frozen=True)
class Facts:
    """Program and target; ``program`` is ``None`` where the task could not be run on fake tensors."""

    gpu: GpuFacts
    program: ProgramFacts | None
    software: str = ""
    """The versions that kernels are compiled and judged with; empty where another machine judges."""
