"""What a launch returns: Triton's ``CompiledKernel``, of which nothing was compiled here."""

from __future__ import annotations

from typing import Any

from triton.compiler import CompiledKernel

from egg.evaluator.interpreter.fault import KernelFault

_Stock: Any = CompiledKernel


class LaunchedKernel(_Stock):
    """Has Triton's type. What only a compiler or a driver knows of a kernel cannot be read from it."""

    def __init__(self, kernel: str) -> None:
        self.name = kernel
        self.module = None

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise KernelFault(
            "unsupported",
            f"kernel {self.name}: host code reads {attribute!r} of what a launch returns; nothing is "
            "compiled in the interpreter, so there is none",
        )

    def _init_handles(self) -> None:
        self.__getattr__("function")


LaunchedKernel.__name__ = LaunchedKernel.__qualname__ = CompiledKernel.__name__
LaunchedKernel.__module__ = CompiledKernel.__module__
