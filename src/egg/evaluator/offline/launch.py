"""The nouns of offline compilation: one recorded launch, a whole capture, and how each may fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from egg.core.resources import KernelResources
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.work.arguments import Argument, heft


class CaptureUnsupported(Exception):
    """The candidate could not be run on fake tensors; this says nothing about its being right or wrong.

    Raised where host code needs values (``.item()`` on a computed tensor, data-dependent
    shapes), or where running it without a GPU went wrong in a way that cannot be distinguished
    apart from a fault of the pretence.
    """


class CompileFailed(Exception):
    """The compiler, or the target's limits, refuse a kernel.

    ``kind`` is ``error`` (the compiler refused), ``resources`` (it compiles but cannot be
    launched on the target) or ``timeout``. ``line`` is the line in the candidate's file, 0
    where unknown, and ``source`` its text.
    """

    def __init__(
        self, kernel: str, target: str, reason: str, kind: str = "error", line: int = 0, source: str = ""
    ):
        self.kernel, self.target, self.reason, self.kind = kernel, target, reason, kind
        self.line, self.source = line, source
        where = f" line {line}" if line else ""
        quoted = f" `{source}`" if source else ""
        super().__init__(
            f"kernel {kernel} on {target}:{where}{quoted}{':' if where or quoted else ''} {reason}"
        )


@dataclass(frozen=True)
class Launch:
    """One kernel at one specialisation and grid, as the host code asked for it.

    ``constexprs`` and ``attrs`` are keyed by the path of the argument, the form Triton's
    compiler takes; ``attrs`` holds what the runtime derived from the actual arguments
    (``tt.divisibility`` of pointers and integers, without which wide loads are lost).
    ``options`` are the compile options that differ from the target's defaults.
    """

    kernel: str
    fn: Any
    """The ``triton.JITFunction``."""
    key: str
    """Identity of the specialisation: equal keys compile to the same binary."""
    grid: tuple[int, ...]
    signature: Mapping[str, Any]
    constexprs: Mapping[tuple[int, ...], Any]
    attrs: Mapping[tuple[int, ...], Any]
    num_warps: int
    num_stages: int
    num_ctas: int
    options: Mapping[str, Any]
    count: int = 1
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """What it was launched with, by parameter name."""

    @property
    def programs(self) -> int:
        return prod(self.grid)

    @property
    def size(self) -> tuple[int, int]:
        """To tell the larger of two launches of one kernel: by programs, then by the bytes it is given."""
        return self.programs, heft(self.arguments)

    @property
    def named_constexprs(self) -> dict[str, Any]:
        """Compile-time values by argument name, integers that Triton specialised to 1 included."""
        names = list(self.signature)
        return {names[path[0]]: value for path, value in self.constexprs.items() if len(path) == 1}


@dataclass(frozen=True)
class RawOutput:
    """An output whose memory no operator filled: where its storage lies, which part of it it is."""

    path: str
    address: int
    first: int
    """Its first byte, from the start of the storage."""
    last: int
    nbytes: int
    """Of its elements; fewer than from the first byte to the last where there are gaps."""


@dataclass(frozen=True)
class Capture:
    """What one call of ``forward`` asks of the GPU once it is warm.

    ``launches`` and ``outside_ops`` belong to the second call: what a candidate does only
    on its first (tuning, packing weights, recording a CUDA graph) is in
    ``first_call_launches``. Launches replayed from a CUDA graph count as launches.
    """

    target: GpuTarget
    launches: tuple[Launch, ...]
    outside_ops: dict[str, int]
    outputs: Any
    first_call_launches: tuple[Launch, ...] = ()
    each: tuple[Launch, ...] = field(default=(), repr=False)
    """The launches of the second call one after the other."""
    seen_ops: Mapping[str, int] = field(default_factory=dict, repr=False)
    """Outside operations of both calls."""
    raw_outputs: tuple[RawOutput, ...] = ()
    """Outputs in memory that was only allocated: kernels must fill them."""
    scalars: tuple[Any, ...] = ()
    """What host code read from tensors."""
    compiled: Mapping[str, KernelResources | CompileFailed] = field(default_factory=dict, repr=False)
    """What was compiled on the way, by :attr:`Launch.key`, for ``target``; not disassembled."""
    kernels: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The ``CompiledKernel`` of each, by the same key: instructions and work can be read in it."""
    uncompiled: int = 0
    """Configurations of autotuners that were to be compiled, and that there was no time for."""
