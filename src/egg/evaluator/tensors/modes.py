"""Dispatch modes that do not load PyTorch's compiler.

PyTorch keeps its compiler out of ``__torch_dispatch__``, and imports the whole of it to do so: more than a
second in every process that watches an operator for the first time. Where the compiler is not loaded there
is nothing to be kept out.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


def compiler_loaded() -> bool:
    """Some operators on meta tensors load it by themselves."""
    return "torch._dynamo" in sys.modules


class LightMode(TorchDispatchMode):
    """What PyTorch wraps around ``__torch_dispatch__`` waits for the compiler."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        guarded = cls.__torch_dispatch__
        plain = getattr(guarded, "__wrapped__", guarded)

        def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            chosen = guarded if compiler_loaded() else plain
            return chosen(self, func, types, args, kwargs)

        cls.__torch_dispatch__ = dispatch
