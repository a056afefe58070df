"""What a worker learns from running kernels under the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

PROPAGATE: ContextVar[bool] = ContextVar("propagate", default=False)
"""Whether maximum and minimum keep a NaN that the language lets them drop."""


@contextmanager
def propagated() -> Iterator[None]:
    """Meanwhile extremes keep every NaN: what a file does to one by itself is then seen alone."""
    token = PROPAGATE.set(True)
    try:
        yield
    finally:
        PROPAGATE.reset(token)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the ``@triton.jit`` function's name and the grid it ran on."""

    kernel: str
    grid: tuple[int, ...]


@dataclass
class Session:
    """The worker's view of every launch since :func:`egg.evaluator.interpreter.install`.

    ``skip`` holds names of kernels whose launches become no-ops: they are still recorded,
    and an output that does not change without them proves that they did no work.
    """

    check_bounds: bool = True
    check_races: bool = True
    launches: list[Launch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skip: set[str] = field(default_factory=set)
    configurations: Any = None
    """Which configuration autotuners take (:class:`egg.evaluator.interpreter.autotune.Chosen`)."""

    asked: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    """Kernels and the numbers that they were launched with, since the process began."""
    excerpt: Any = None
    """Which programs run, where not all do (:class:`egg.evaluator.interpreter.excerpt.Excerpt`)."""

    def note(self, text: str) -> None:
        """Keep a remark once, however many programs cause it."""
        if text not in self.notes:
            self.notes.append(text)

    def reset(self) -> None:
        """Forget the launches and notes so far; ``skip`` stays as the caller set it."""
        self.launches.clear()
        self.notes.clear()
