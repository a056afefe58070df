"""Arguments of the constructor that the kernels are right for at one value alone."""

from __future__ import annotations

from egg.expert.graph import Graph
from egg.expert.writing.constructor import Constructor
from egg.expert.writing.guard_text import Names
from egg.expert.writing.literals import differs, literal_text


def fixed_arguments(built: Constructor, graph: Graph, names: Names) -> Constructor:
    """The constructor with a check of every such argument."""
    lines = [
        line
        for argument in graph.usage.arguments
        if not argument.free
        for line in (
            f"if {differs(argument.name, argument.value)}:",
            f'    raise {names.outside}(f"{argument.name} is {{{argument.name}!r}}", '
            f"{literal_text(literal_text(argument.value))})",
        )
    ]
    return built.beginning(lines) if lines else built
