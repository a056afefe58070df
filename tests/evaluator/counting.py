"""Compile a kernel to Triton's IR and count its work, without a GPU and without assembling anything."""

# Kernels are not typed Python: constexpr parameters take plain values.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler import ASTSource, make_backend
from triton.tools.tensor_descriptor import TensorDescriptor

from egg.core.resources import Access, KernelWork
from egg.evaluator.work.arguments import argument_forms
from egg.evaluator.work.count import count_work

NAMES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int32: "i32",
    torch.int64: "i64", torch.int8: "i8", torch.float8_e4m3fn: "fp8e4nv",
}  # fmt: skip


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def spelled(value: Any) -> Any:
    """A type as a signature spells it."""
    if isinstance(value, torch.Tensor):
        return "*" + NAMES[value.dtype]
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{NAMES[value.base.dtype]}{list(value.block_shape)}>"
    if isinstance(value, tuple):
        return tuple(spelled(item) for item in value)
    return "fp32" if isinstance(value, float) else "i32"


def ttir(fn: Any, given: dict[str, Any]) -> str:
    """Triton's IR as the compiler hands it on, without assembling anything."""
    constants = {(p.num,): given[p.name] for p in fn.params if p.is_constexpr}
    signature = {p.name: "constexpr" if p.is_constexpr else spelled(given[p.name]) for p in fn.params}
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({"enable_fp_fusion": True})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(fn, signature, constants, {})
    codegen, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, codegen, modules, context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    return str(stages["ttir"](module, {}))


def count(fn: Any, grid: tuple[int, ...], *args: Any, **named: Any) -> KernelWork:
    given = {**dict(zip(fn.arg_names, args, strict=False)), **named}
    work = count_work(ttir(fn, given), argument_forms(given), grid)
    assert work is not None
    return work


def access(work: KernelWork, argument: str, store: bool = False) -> Access:
    """All accesses to one argument added up."""
    found = [a for a in work.accesses if (a.argument, a.store) == (argument, store)]
    assert found, [a.argument for a in work.accesses]
    moved = sum(a.bytes for a in found), sum(a.sector_bytes for a in found)
    scattered = sum(a.sector_bytes * a.scattered for a in found) / moved[1]
    return Access(argument, store, *moved, found[0].argument_bytes, found[0].atomic, scattered)
