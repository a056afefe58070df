"""What a worker learns from running kernels under the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from egg.evaluator.interpreter.fault import KernelFault

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


@dataclass
class Lot:
    """Whether what the language leaves open is drawn anew, rather than always answered in one way.

    A value of the process and not of a context: programs that take turns are threads.
    """

    cast: bool = False
    seed: int = 0
    """Of every order; the same for all calls but those by lot, so that a sum rounds alike at each of them."""


LOT = Lot()


@contextmanager
def by_lot(seed: int) -> Iterator[None]:
    """Meanwhile programs with atomics meet in any order, reductions combine in any, and products contract."""
    LOT.cast, LOT.seed = True, seed
    try:
        yield
    finally:
        LOT.cast, LOT.seed = False, 0


def any_order(count: int) -> np.ndarray:
    """A permutation, the same for all tiles of one size until the next lot is drawn."""
    return _any_order(count, LOT.seed)


@lru_cache(maxsize=64)
def _any_order(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, count)).permutation(count)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the ``@triton.jit`` function's name and the grid it ran on."""

    kernel: str
    grid: tuple[int, ...]
    numbers: tuple[tuple[str, str], ...] = ()
    """Plain values among its arguments, by name."""
    accesses: Counter[str] = field(default_factory=Counter, compare=False)
    """Where that is counted: the bytes of its loads and stores, and how far apart they lie."""


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
    counting: bool = False
    """Whether the accesses of launches are counted."""
    configurations: Any = None
    """Which configuration autotuners take (:class:`egg.evaluator.interpreter.autotune.Chosen`)."""

    accumulating: dict[Any, bool] = field(default_factory=dict)
    """Kernels that were launched: whether they store to what they load, or use atomics."""
    asked: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    """Kernels and the numbers that they were launched with, since the process began."""
    left: Any = None
    """What an earlier call left in kept memory, where loads of it are looked for
    (:class:`egg.evaluator.interpreter.left.Left`)."""
    excerpt: Any = None
    """Which programs run, where not all do (:class:`egg.evaluator.interpreter.excerpt.Excerpt`)."""

    around: Any = None
    """Is handed each launch (kernel, arguments, what runs it), and runs it or does something in its place."""

    effects: dict[tuple[str, int], dict[str, bytes]] = field(default_factory=dict)
    """What launches at the task's own size left in small memories, by kernel, number of its launch and
    argument: what they leave again where they are skipped."""

    def waits(self, why: str) -> None:
        """A program waits for another, which will not run meanwhile; in an excerpt that is no fault of it."""
        if self.excerpt is not None:
            self.excerpt.give_up(why)
        raise KernelFault("unsupported", why)

    def note(self, text: str) -> None:
        """Keep a remark once, however many programs cause it."""
        if text not in self.notes:
            self.notes.append(text)

    def reset(self) -> None:
        """Forget the launches and notes so far; ``skip`` stays as the caller set it."""
        self.launches.clear()
        self.notes.clear()
