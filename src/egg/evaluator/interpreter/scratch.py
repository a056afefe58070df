"""Scratch memory of a launch: descriptors that a kernel makes (``tl.make_tensor_descriptor``) lie there.

On a GPU the launcher asks the function that ``triton.set_allocator`` was given. Without one it raises; with
less memory than asked for the programs write beyond it.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.runtime import _allocation

from egg.evaluator.interpreter.fault import KernelFault

DESCRIPTOR_BYTES = ALIGNMENT = 128


class Scratch:
    """Of one launch; asked for when its first program makes a descriptor."""

    def __init__(self, programs: int) -> None:
        self._nbytes = DESCRIPTOR_BYTES * programs
        self._allocator: Any = _allocation._allocator.get()
        """As the host has it: programs that take turns are threads, in which nothing is set."""
        self._there = False

    def need(self, where: str) -> None:
        """Ask the allocator once, and look at what it gives."""
        if self._there:
            return
        buffer = self._allocator(self._nbytes, ALIGNMENT, 0)
        held = buffer.numel() * buffer.element_size() if isinstance(buffer, torch.Tensor) else 0
        if held < self._nbytes:
            raise KernelFault(
                "out_of_bounds",
                f"{where}: descriptors take {self._nbytes} bytes of scratch memory, and the allocator that "
                f"triton.set_allocator was given returned {held}",
            )
        self._there = True
