"""What is decided from outside about the groups of a program, and the groups that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from egg.expert.emit.kinds import kind_of
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part
from egg.expert.pattern import FREE, Patterns
from egg.expert.patterns import PATTERNS


@dataclass(frozen=True)
class Structure:
    """A program as groups in an order that can be executed, each written."""

    graph: Graph
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]
    patterns: Patterns = field(default_factory=lambda: PATTERNS, repr=False)
    """The table that they were chosen from."""

    @property
    def kernels(self) -> int:
        return len({name for part in self.parts for name in part.kernels})

    @property
    def left_to_pytorch(self) -> tuple[str, ...]:
        """Operators that no kernel of ours computes."""
        left = (
            node for group in self.groups if self.patterns[group.pattern].fallback for node in group.nodes
        )
        counted = (node for node in left if node.op not in (*FREE, "update", "joined"))
        return tuple(dict.fromkeys(map(kind_of, counted)))


@dataclass(frozen=True)
class Choices:
    """What is decided from outside: patterns to leave out, and settings per group name."""

    without: frozenset[str] = frozenset()
    """Patterns that are not to be used: ``convolution`` leaves convolutions to the library."""
    alone: frozenset[str] = frozenset()
    """Patterns whose groups take nothing along: for when a fused tail costs more than it saves."""
    settings: Mapping[str, Mapping[str, int | str | bool]] = field(default_factory=dict)
    """By group name."""
    grades: Mapping[str, str] = field(default_factory=dict)
    """By pattern: how exact its products are."""
    left: frozenset[tuple[str, str]] = frozenset()
    """Pattern and value: the operator that makes the value is not to be written by the pattern."""
    apart: frozenset[tuple[str, str]] = frozenset()
    """Pattern and value: what makes the value takes nothing along, and joins nothing before it."""
