"""EGG: an expert-guided agent framework for GPU kernel generation.

``egg.optimize(module, args, kwargs)`` gives a drop-in module with verified kernels, ``egg.load`` one that was
saved, ``egg.judge`` a verdict on a kernel file, ``egg.backend`` is the backend of ``torch.compile`` that a
name finds as ``backend="egg"``. They are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from egg.api.modules import judge as judge
    from egg.api.modules import load as load
    from egg.api.modules import optimize as optimize

    backend: Any

__version__ = "0.1.0"
__all__ = ["__version__", "backend", "judge", "load", "optimize"]


def __getattr__(name: str) -> Any:
    if name == "backend":
        return import_module("egg.modules.backend").backend
    if name in ("judge", "load", "optimize"):
        from egg.api import modules

        return getattr(modules, name)
    raise AttributeError(f"module 'egg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
