"""Recognise a compiled kernel by its machine code alone.

A cubin (NVIDIA) and an hsaco (AMD) are ELF files. The instructions stand in ``.text``
sections and, on NVIDIA, literals that do not fit into an instruction in constant banks.
Everything else changes with the name of the kernel or the lines it was written on: symbols,
debug information, line tables.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little endian."""
_WITHOUT_CONTENT = 8


def code_hash(kernel: Any) -> str:
    """Of a ``triton.compiler.CompiledKernel``; empty where there is no binary of a known form."""
    binary = kernel.asm.get("cubin") or kernel.asm.get("hsaco") or b""
    if not isinstance(binary, bytes) or not binary.startswith(_MAGIC):
        return ""
    digest = hashlib.sha256()
    found = False
    for name, content in _sections(binary):
        kind = next((k for k in (".text", ".nv.constant") if name.startswith(k)), None)
        if kind is not None:
            found = found or kind == ".text"
            digest.update(f"{kind} {len(content)}:".encode())
            digest.update(content)
    return digest.hexdigest()[:16] if found else ""


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of every section, in the order of the file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, number, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(number)]
    strings = headers[names][4]
    for name, kind, _, _, offset, length in headers:
        start = strings + name
        text = elf[start : elf.index(b"\0", start)].decode(errors="replace")
        yield text, b"" if kind == _WITHOUT_CONTENT else elf[offset : offset + length]
