"""EGG: an expert-guided agent framework for GPU kernel generation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {"backend": "egg.modules.backend"}
"""What a program uses by name, and the module that defines it."""


def __getattr__(name: str) -> Any:
    """Import what a program uses when it is first used: ``import egg`` itself imports nothing."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'egg' has no attribute {name!r}")
