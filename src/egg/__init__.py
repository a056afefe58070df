"""EGG: an expert-guided agent framework for GPU kernel generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from egg.modules.backend import backend

__version__ = "0.1.0"
__all__ = ["__version__", "backend"]


def __getattr__(name: str) -> Any:
    """Import what a program uses when it is first used: ``import egg`` itself imports nothing."""
    if name == "backend":
        from egg.modules.backend import backend

        return backend
    raise AttributeError(f"module 'egg' has no attribute {name!r}")
