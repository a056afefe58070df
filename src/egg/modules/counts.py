"""How the calls of a graph were answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Call = Callable[..., Any]
"""What answers the calls of a graph."""


@dataclass
class Counts:
    """How the calls of one graph were answered."""

    kernel: int = 0
    fallback: int = 0
    outside: dict[str, int] = field(default_factory=dict)
    """Calls outside of the kernel's domain, by reason."""
    failure: str = ""
    """The exception that put the kernel out of use."""
