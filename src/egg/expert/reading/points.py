"""Where a program is captured: the integers of its source, and what is changed besides them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from egg.core.source import Task
from egg.evaluator.task.dimensions import Place, Varied
from egg.evaluator.task.program import Program
from egg.expert.graph import Graph
from egg.expert.reading.turning import Sizes


@dataclass(frozen=True)
class Changes:
    """What a capture changes beside the source's text: single dimensions of inputs, arguments of the
    constructor, numbers that ``forward`` is given, the mode."""

    sizes: tuple[tuple[Place, int], ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()
    values: tuple[tuple[int, Any], ...] = ()
    training: bool | None = None

    def applied(self, program: Program) -> Varied:
        return Varied.of(
            program,
            sizes=dict(self.sizes),
            arguments=dict(self.arguments),
            values=dict(self.values),
            training=self.training,
        )


@dataclass(frozen=True)
class Capture:
    """A program at one point."""

    graph: Graph
    numbers: Mapping[str, int | float]
    """Numbers that its modules keep and that ``forward`` is given, by the text that finds them."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the constructor was given, defaults included."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``forward`` that are no tensors."""
    defaults: tuple[tuple[str, Any], ...] = ()
    """Parameters of ``forward`` that the task leaves out."""


Capturing = Callable[[Task, Changes], Capture]


@dataclass(frozen=True)
class Variant:
    """A capture, and where it was made."""

    sizes: Sizes
    """Values of the source's integers."""
    capture: Capture
    changes: Changes = field(default_factory=Changes)

    @property
    def graph(self) -> Graph:
        return self.capture.graph
