"""Read from a compiled kernel what it will cost: registers, spills, shared memory, instruction mix.

For NVIDIA the binary itself is asked, with the disassemblers that Triton's wheel bundles
(a kernel that was never loaded has no ``n_regs``); for AMD the assembly text says it all.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import triton.backends

from egg.core.errors import MachineError
from egg.core.resources import InstructionMix
from egg.evaluator.offline.loops import looped_instructions

_USED = ("--dump-resource-usage",)
_CODE = ("--print-code", "--no-dataflow")
"""Without its analysis of indirect jumps, of which Triton makes none, the listing is the same and a third of
the time is saved."""
_LINES = ("--print-line-info-inline",)
"""With the line of the source before the instructions that come from it."""
_USAGE = re.compile(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)\s+LOCAL:(\d+)")
_OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_TENSOR_CORE = re.compile(r"(?:UTC)?(?:[BDHIOQ]|OMX|QX)G?MMA\b")
_WARP_GROUP = re.compile(r"(?:UTC\w*MMA|[BDHIOQ]GMMA)\b")
_ARITHMETIC = re.compile(r"[FHD](?:FMA|ADD|MUL)(?:2|32I|2_32I)?\b")
_GLOBAL_LOAD = re.compile(r"(?:LDG|LD)\b")
_GLOBAL_STORE = re.compile(r"(?:STG|ST|UTMASTG)\b")
_SHARED_LOAD = re.compile(r"LDSM?\b")
_SHARED_STORE = re.compile(r"STSM?\b")
_LOCAL = re.compile(r"(?:LDL|STL)\b")
_ASYNC_COPY = re.compile(r"(?:LDGSTS|UTMALDG|UBLKCP)\b")
_BULK = re.compile(r"(?:UTMALDG|UTMASTG|UBLKCP)\b")
_ATOMIC = re.compile(r"(?:ATOMG?|REDG?|UTMAREDG)\b")
_BARRIER = re.compile(r"(?:BAR|UCGABAR\w*)\b")
_SHUFFLE = re.compile(r"(?:SHFL|REDUX)\b")
_SPECIAL = re.compile(r"MUFU\b")
SASS_KINDS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "tensor cores": _TENSOR_CORE,
        "global loads": _GLOBAL_LOAD,
        "global stores": _GLOBAL_STORE,
        "asynchronous copies": _ASYNC_COPY,
        "shared loads": _SHARED_LOAD,
        "shared stores": _SHARED_STORE,
        "spills": _LOCAL,
        "barriers": _BARRIER,
        "waits": re.compile(r"(?:DEPBAR|LDGDEPBAR|SYNCS|WARPSYNC|WARPGROUP|ERRBAR|MEMBAR|FENCE)\b"),
        "atomics": _ATOMIC,
        "shuffles": _SHUFFLE,
        "special functions": _SPECIAL,
        "arithmetic": _ARITHMETIC,
        "conversions": re.compile(r"(?:F2F|F2FP|F2I|I2F|I2FP|I2I)\b"),
    }
)
"""The opcodes of NVIDIA's machine code by what they do; the rest is addresses, moves and control."""

_AMD_OPCODE = re.compile(r"^\s+((?:v|s|ds|global|buffer|flat|scratch)_\w+)", re.MULTILINE)
_AMD_MEMORY = re.compile(r"(?:global|buffer|flat)_(load|store)_(lds_)?(\w+)")
_AMD_TENSOR_CORE = re.compile(r"v_(?:mfma|smfmac|wmma|swmmac)_")
_AMD_ARITHMETIC = re.compile(r"v_(?:pk_)?(?:fmac?|fmamk|fmaak|add|sub|subrev|mul|mad|mac)_f(?:16|32|64)")
_AMD_SPECIAL = re.compile(r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_(?:iflag_)?f(?:16|32|64)")
_AMD_SHUFFLE = re.compile(r"(?:ds_(?:bpermute|permute|swizzle)_|v_\w+_dpp\b|v_permlane)")
_AMD_BITS = {"ubyte": 8, "sbyte": 8, "ushort": 16, "sshort": 16, "short": 16, "byte": 8, "dword": 32}


@dataclass(frozen=True)
class Usage:
    """Per thread, except where noted.

    ``spill_bytes`` is the stack frame: Triton keeps no arrays in local memory, so what is
    there was spilled. ``widest_load_bits`` counts one instruction of one thread; tiles that
    the copy engine moves (TMA) count as full width, 128.
    """

    registers: int
    spill_bytes: int
    tensor_core_instructions: int
    widest_load_bits: int
    instructions: InstructionMix | None = None


def read_usage(kernel: Any, timeout_s: float, *, instructions: bool = True) -> Usage:
    """What ``kernel`` (a ``triton.compiler.CompiledKernel``) will use.

    Without ``instructions`` an NVIDIA binary is not disassembled, which takes as long as compiling it
    did: registers and spills are read, the rest is left at nothing.
    """
    with reading(kernel, timeout_s, instructions=instructions) as usage:
        return usage()


@contextlib.contextmanager
def reading(kernel: Any, timeout_s: float, *, instructions: bool = True) -> Iterator[Callable[[], Usage]]:
    """Begin to read what ``kernel`` will use, and give what waits for the answer.

    The disassemblers are processes of their own: several kernels are read at the same time.
    """
    if "cubin" not in kernel.asm:
        yield lambda: _read_amdgcn(kernel.asm["amdgcn"])
        return
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".cubin"))
        file.write(kernel.asm["cubin"])
        file.flush()
        used = stack.enter_context(_tool("cuobjdump", _USED, file.name, timeout_s))
        code = stack.enter_context(_tool("nvdisasm", _CODE, file.name, timeout_s)) if instructions else None
        yield lambda: _cubin_usage(used(), code and code())


def disassembled(kernel: Any, timeout_s: float) -> str:
    """NVIDIA's machine code of ``kernel`` with the lines of its source; empty where no disassembler is."""
    if "cubin" not in kernel.asm or not _path_of("nvdisasm").exists():
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        with _tool("nvdisasm", (*_CODE, *_LINES), file.name, timeout_s) as code:
            return code()


def _cubin_usage(report: str, code: str | None) -> Usage:
    usage, text, instructions = _USAGE.search(report), code or "", code is not None
    opcodes = _OPCODE.findall(text)
    if usage is None or (instructions and not opcodes):
        raise MachineError(
            "the bundled disassembler reports nothing of a kernel", "is Triton's wheel complete?"
        )
    registers, stack, _, local = map(int, usage.groups())
    if not instructions:
        return Usage(registers, max(stack, local), tensor_core_instructions=0, widest_load_bits=0)
    return Usage(
        registers=registers,
        spill_bytes=max(stack, local),
        tensor_core_instructions=_how_many(_TENSOR_CORE, opcodes),
        widest_load_bits=max(map(_widest_of, opcodes)),
        instructions=replace(sass_mix(opcodes), looped=looped_instructions(text)),
    )


def sass_mix(opcodes: Sequence[str]) -> InstructionMix:
    """Count the instructions of a kernel for NVIDIA, given as opcodes with their suffixes (``LDG.E.128``)."""
    loads = [_bits(op) for op in opcodes if _GLOBAL_LOAD.match(op)]
    copies = [op for op in opcodes if _ASYNC_COPY.match(op)]
    stores = [128 if _BULK.match(op) else _bits(op) for op in opcodes if _GLOBAL_STORE.match(op)]
    return InstructionMix(
        total=sum(op != "NOP" for op in opcodes),
        tensor_core=_how_many(_TENSOR_CORE, opcodes),
        arithmetic=_how_many(_ARITHMETIC, opcodes),
        special=_how_many(_SPECIAL, opcodes),
        global_loads=len(loads),
        global_stores=len(stores),
        shared_loads=_how_many(_SHARED_LOAD, opcodes),
        shared_stores=_how_many(_SHARED_STORE, opcodes),
        local=_how_many(_LOCAL, opcodes),
        async_copies=_how_many(_ASYNC_COPY, opcodes),
        atomics=_how_many(_ATOMIC, opcodes),
        barriers=_how_many(_BARRIER, opcodes),
        shuffles=_how_many(_SHUFFLE, opcodes),
        narrowest_load_bits=min(loads, default=0),
        widest_store_bits=max(stores, default=0),
        warp_group=_how_many(_WARP_GROUP, opcodes),
        narrowest_copy_bits=min((128 if _BULK.match(op) else _bits(op) for op in copies), default=0),
    )


def _how_many(kind: re.Pattern[str], opcodes: Sequence[str]) -> int:
    return sum(bool(kind.match(op)) for op in opcodes)


def _widest_of(opcode: str) -> int:
    """Bits one thread reads from global memory with a SASS instruction; 0 where it does not."""
    if opcode.startswith(("UTMALDG", "UBLKCP")):
        return 128
    return _bits(opcode) if _GLOBAL_LOAD.match(opcode) or opcode.startswith("LDGSTS") else 0


def _bits(opcode: str) -> int:
    """Width of a load or store by its suffixes; without one it is 32."""
    for part in opcode.split("."):
        if part in ("256", "128", "64"):
            return int(part)
        if part in ("U8", "S8"):
            return 8
        if part in ("U16", "S16"):
            return 16
    return 32


def _read_amdgcn(text: str) -> Usage:
    def noted(key: str) -> int:
        found = re.search(rf"^\s*\.{key}:\s+(\d+)", text, re.MULTILINE)
        return int(found.group(1)) if found else 0

    opcodes = _AMD_OPCODE.findall(text)
    touched = [found for op in opcodes if (found := _AMD_MEMORY.match(op))]
    return Usage(
        registers=noted("vgpr_count"),
        spill_bytes=noted("private_segment_fixed_size"),
        tensor_core_instructions=_how_many(_AMD_TENSOR_CORE, opcodes),
        widest_load_bits=max((_amd_bits(m[3]) for m in touched if m[1] == "load"), default=0),
        instructions=_amd_mix(opcodes, touched),
    )


def _amd_mix(opcodes: Sequence[str], touched: Sequence[re.Match[str]]) -> InstructionMix:
    loads = [_amd_bits(m[3]) for m in touched if m[1] == "load" and not m[2]]
    stores = [_amd_bits(m[3]) for m in touched if m[1] == "store"]

    def starting(*prefixes: str) -> int:
        return sum(op.startswith(prefixes) for op in opcodes)

    return InstructionMix(
        total=sum(op not in ("s_nop", "s_code_end") for op in opcodes),
        tensor_core=_how_many(_AMD_TENSOR_CORE, opcodes),
        arithmetic=_how_many(_AMD_ARITHMETIC, opcodes),
        special=_how_many(_AMD_SPECIAL, opcodes),
        global_loads=len(loads),
        global_stores=len(stores),
        shared_loads=starting("ds_read", "ds_load"),
        shared_stores=starting("ds_write", "ds_store"),
        local=starting("scratch_load", "scratch_store"),
        async_copies=sum(bool(m[2]) for m in touched),
        atomics=starting("global_atomic", "buffer_atomic", "flat_atomic"),
        barriers=starting("s_barrier"),
        shuffles=_how_many(_AMD_SHUFFLE, opcodes),
        narrowest_load_bits=min(loads, default=0),
        widest_store_bits=max(stores, default=0),
    )


def _amd_bits(width: str) -> int:
    """``dwordx4`` (CDNA) or ``b128`` (RDNA, newer CDNA) to bits."""
    if found := re.fullmatch(r"dwordx(\d+)", width):
        return 32 * int(found.group(1))
    if found := re.fullmatch(r"[bui](\d+)", width):
        return int(found.group(1))
    return next((bits for name, bits in _AMD_BITS.items() if width.startswith(name)), 32)


def _path_of(tool: str) -> Path:
    """Where Triton's wheel puts one of NVIDIA's tools."""
    return Path(triton.backends.__file__).parent / "nvidia" / "bin" / tool


@contextlib.contextmanager
def _tool(name: str, flags: Sequence[str], path: str, timeout_s: float) -> Iterator[Callable[[], str]]:
    """Start one of the bundled tools; what is given waits for its end and returns its output.

    It writes to a file: a pipe would make it wait for a reader.
    """
    tool = _path_of(name)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                [tool, *flags, path], stdin=subprocess.DEVNULL, stdout=out, stderr=complaints
            )
        except FileNotFoundError:
            raise MachineError(
                f"{name} is not where Triton's wheel puts it: {tool}", "reinstall triton"
            ) from None

        def output() -> str:
            code = process.wait(timeout_s)
            out.seek(0)
            complaints.seek(0)
            if code:
                why = complaints.read().decode(errors="replace").strip()[:300]
                raise MachineError(f"{name} failed: {why}", "reinstall triton")
            return out.read().decode(errors="replace")

        try:
            yield output
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
