"""Read from a compiled kernel what it will cost: registers, spills, shared memory, instruction mix.

For NVIDIA the binary itself is asked, with the disassemblers that Triton's wheel bundles
(a kernel that was never loaded has no ``n_regs``); for AMD the assembly text says it all.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton.backends

from egg.core.errors import MachineError

_USAGE = re.compile(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)\s+LOCAL:(\d+)")
_OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_TENSOR_CORE = re.compile(r"^(?:UTC)?(?:[BDHIOQ]|OMX|QX)G?MMA\b")
_GLOBAL_LOAD = re.compile(r"^(?:LDG|LDGSTS|LD)\b")
_BULK_LOAD = re.compile(r"^(?:UTMALDG|UBLKCP)\b")

_AMD_LOAD = re.compile(r"^\s*(?:global|buffer|flat)_load_(?:lds_)?(\w+)", re.MULTILINE)
_AMD_TENSOR_CORE = re.compile(r"^\s*v_(?:mfma|smfmac|wmma|swmmac)_", re.MULTILINE)
_AMD_BITS = {"ubyte": 8, "sbyte": 8, "ushort": 16, "sshort": 16, "short": 16, "dword": 32}


@dataclass(frozen=True)
class Usage:
    """Per thread, except where said otherwise.

    ``spill_bytes`` is the stack frame: Triton keeps no arrays in local memory, so what is
    there was spilled. ``widest_load_bits`` counts one instruction of one thread; tiles that
    the copy engine moves (TMA) count as full width, 128.
    """

    registers: int
    spill_bytes: int
    tensor_core_instructions: int
    widest_load_bits: int


def read_usage(kernel: Any, timeout_s: float) -> Usage:
    """What ``kernel`` (a ``triton.compiler.CompiledKernel``) will use."""
    if "cubin" in kernel.asm:
        return _read_cubin(kernel.asm["cubin"], timeout_s)
    return _read_amdgcn(kernel.asm["amdgcn"])


def _read_cubin(cubin: bytes, timeout_s: float) -> Usage:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _USAGE.search(_run_tool("cuobjdump", "--dump-resource-usage", file.name, timeout_s))
        opcodes = _OPCODE.findall(_run_tool("nvdisasm", "-c", file.name, timeout_s))
    if usage is None or not opcodes:
        raise MachineError("the bundled disassembler said nothing of a kernel", "is Triton's wheel complete?")
    registers, stack, _, local = map(int, usage.groups())
    return Usage(
        registers=registers,
        spill_bytes=max(stack, local),
        tensor_core_instructions=sum(bool(_TENSOR_CORE.match(op)) for op in opcodes),
        widest_load_bits=max((_load_bits(op) for op in opcodes), default=0),
    )


def _load_bits(opcode: str) -> int:
    """Bits one thread reads from global memory with a SASS instruction; 0 where it does not."""
    if _BULK_LOAD.match(opcode):
        return 128
    if not _GLOBAL_LOAD.match(opcode):
        return 0
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

    return Usage(
        registers=noted("vgpr_count"),
        spill_bytes=noted("private_segment_fixed_size"),
        tensor_core_instructions=len(_AMD_TENSOR_CORE.findall(text)),
        widest_load_bits=max((_amd_load_bits(width) for width in _AMD_LOAD.findall(text)), default=0),
    )


def _amd_load_bits(width: str) -> int:
    """``dwordx4`` (CDNA) or ``b128`` (RDNA, newer CDNA) to bits."""
    if found := re.fullmatch(r"dwordx(\d+)", width):
        return 32 * int(found.group(1))
    if found := re.fullmatch(r"[bui](\d+)", width):
        return int(found.group(1))
    return next((bits for name, bits in _AMD_BITS.items() if width.startswith(name)), 32)


def _run_tool(name: str, flag: str, path: str, timeout_s: float) -> str:
    tool = Path(triton.backends.__file__).parent / "nvidia" / "bin" / name
    try:
        done = subprocess.run(
            [tool, flag, path], capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except FileNotFoundError:
        raise MachineError(
            f"{name} is not where Triton's wheel puts it: {tool}", "reinstall triton"
        ) from None
    except subprocess.CalledProcessError as error:
        raise MachineError(f"{name} failed: {error.stderr.strip()[:300]}", "reinstall triton") from error
    return done.stdout
