"""One compiled kernel and one launch of it, described: resources, instructions and work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from egg.core.resources import KernelResources
from egg.evaluator.offline.machinecode import code_hash
from egg.evaluator.offline.resources import Usage, read_usage
from egg.evaluator.work.arguments import Argument
from egg.evaluator.work.count import count_work


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
    each of the two disassemblers.
    """
    described = resources_of(kernel, read_usage(kernel, timeout_s), name=name, grid=grid, launches=launches)
    return replace(described, work=count_work(ttir_of(kernel), arguments, grid))


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
