"""The one exception a kernel's misbehaviour becomes while it is interpreted."""

from __future__ import annotations

from typing import Literal

Reason = Literal["out_of_bounds", "race", "unsupported", "hint", "undefined"]


class KernelFault(RuntimeError):
    """A kernel did what a GPU would not forgive, or what the interpreter cannot judge.

    ``reason`` is for programs, the message for people: it names the kernel, the program
    and, for memory faults, the argument and the element.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
