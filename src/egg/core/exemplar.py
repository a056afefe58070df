"""An accepted kernel of an earlier run, kept as an example for programs like its own."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.stage import Category, Stage


@dataclass(frozen=True)
class Won:
    """One change on the way to the kernel that was promoted."""

    stage: Stage
    category: Category | None
    """``None`` for the first kernel, which follows no plan."""
    change: str
    """The change that the plan states; of a first kernel, its structure."""
    gain: float | None
    """Over the kernel before; ``None`` where nothing was before it, or nothing was timed."""
    skill: str | None = None


@dataclass(frozen=True)
class Exemplar:
    """The kernel that a run returned, with what it is worth and what made it so."""

    run: str
    task: str
    """The task's name."""
    gpu: str
    arch: str
    source: str
    """The kernel file."""
    diff: str
    """From the kernel that the run began with, unified; empty where the first one was the last."""
    won: tuple[Won, ...]
    milliseconds: float | None
    """Measured; ``None`` where no GPU did."""
    speedup: float | None
    """Over eager, measured."""
    version: str
    """Of this package."""
    when: str
    team: str = ""
    """Of its run."""
    likeness: float = 1.0
    """Of its program to the one at hand, from 0 to 1, where it was recalled for one."""
