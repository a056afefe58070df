"""Compiled kernels and a launch of each, described: resources, instructions and work."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from egg.core.resources import KernelResources
from egg.evaluator.offline.machinecode import code_hash
from egg.evaluator.offline.resources import Usage, reading
from egg.evaluator.work.arguments import Argument
from egg.evaluator.work.count import count_work

AT_ONCE = 8
"""Kernels whose disassemblers run at the same time."""


def describe_kernel(
    kernel: Any,
    *,
    name: str,
    grid: tuple[int, ...],
    arguments: Mapping[str, Argument],
    launches: int = 1,
    timeout_s: float = 15,
) -> KernelResources:
    """``kernel`` is a ``triton.compiler.CompiledKernel``, loaded on a GPU or only compiled for one.

    ``arguments`` are the forms of what it was launched with
    (:func:`egg.evaluator.work.arguments.argument_forms`); ``timeout_s`` bounds the wait for
    each of the two disassemblers, which run while the work is counted.
    """
    with reading(kernel, timeout_s) as usage:
        work = count_work(ttir_of(kernel), arguments, grid)
        described = resources_of(kernel, usage(), name=name, grid=grid, launches=launches)
    return replace(described, work=work)


class Launched(Protocol):
    """A kernel, and how it was launched."""

    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> Any: ...
    @property
    def grid(self) -> tuple[int, ...]: ...
    @property
    def arguments(self) -> Mapping[str, Argument]: ...
    @property
    def launches(self) -> int: ...


def describe_kernels(launched: Sequence[Launched], timeout_s: float = 15) -> list[KernelResources]:
    """The same of several, whose disassemblers run at the same time."""
    rows = []
    for some in (launched[start : start + AT_ONCE] for start in range(0, len(launched), AT_ONCE)):
        with contextlib.ExitStack() as stack:
            usages = [stack.enter_context(reading(one.kernel, timeout_s)) for one in some]
            works = [count_work(ttir_of(one.kernel), one.arguments, one.grid) for one in some]
            for one, usage, work in zip(some, usages, works, strict=True):
                resources = resources_of(
                    one.kernel, usage(), name=one.name, grid=one.grid, launches=one.launches
                )
                rows.append(replace(resources, work=work))
    return rows


def resources_of(
    kernel: Any, usage: Usage, *, name: str, grid: tuple[int, ...], launches: int
) -> KernelResources:
    """What the compiler and the machine code say; the work is not counted yet."""
    metadata = kernel.metadata
    return KernelResources(
        name=name,
        grid=grid,
        registers=usage.registers,
        spill_bytes=usage.spill_bytes,
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        tensor_core_instructions=usage.tensor_core_instructions,
        widest_load_bits=usage.widest_load_bits,
        launches=launches,
        code=code_hash(kernel),
        instructions=usage.instructions,
    )


def ttir_of(kernel: Any) -> str:
    """The Triton IR a kernel was compiled from; empty where it does not say."""
    text = kernel.asm.get("ttir", "")
    return text if isinstance(text, str) else ""
