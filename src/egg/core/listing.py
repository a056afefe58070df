"""The compiled code of one kernel, as text."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.resources import KernelResources

SASS = "SASS"
AMDGCN = "AMDGCN"


@dataclass(frozen=True)
class Listing:
    """One specialisation of a kernel: what the compiler made of it, in the languages that can be read."""

    kernel: str
    specialisation: int
    """Its number among those of the kernel, the largest launch first, from 1."""
    specialisations: int
    resources: KernelResources
    language: str
    """Of ``code``: ``SASS`` or ``AMDGCN``; empty where there is no disassembler."""
    code: str
    """Machine code with the lines of the source, as the disassembler prints it."""
    ptx: str
    """Empty for AMD, which has none."""

    def __post_init__(self) -> None:
        if bool(self.language) != bool(self.code):
            raise ValueError("machine code has a language")


@dataclass(frozen=True)
class Listings:
    """The kernels that a file launches by name, and the one that was asked for where it is among them."""

    kernels: tuple[str, ...]
    listing: Listing | None
    gpu: str = ""
    """That it was compiled for."""
