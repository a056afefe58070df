"""The structures worth trying besides the one a run began with, best promise first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from egg.core.stage import Category
from egg.expert.graph import Graph
from egg.expert.moves import Alone, Move, Recipe, Without


@dataclass(frozen=True)
class Option:
    """A change of structure, with what it is against and what it promises."""

    category: Category
    against: str
    sentence: str
    moves: tuple[Move, ...]
    promise: float
    expectation: str
    skills: tuple[str, ...] = ()
    """Whose advice it follows, where one of them is offered."""


def options(graph: Graph, recipe: Recipe) -> Iterator[Option]:
    """What the graph has that could be written otherwise than ``recipe`` has it."""
    ops = {node.op for node in graph}
    if "conv" in ops and "convolution" not in recipe.without:
        yield Option(
            Category.ALGORITHM_REPLACEMENT,
            "packing and implicit GEMM may cost more than the library's own algorithm",
            "leave convolutions to the library, with what follows them in one pass",
            (Without("convolution"),),
            1.1,
            "the library's algorithm and one more pass over its result",
            ("library-call-left", "convolution-tail-fusion"),
        )
    if "matmul" in ops and "product" not in recipe.without:
        yield Option(
            Category.KERNEL_SPLIT,
            "a long tail in the epilogue holds registers while the tensor cores wait",
            "products alone, what follows them in passes of its own",
            (Alone("product"),),
            1.02,
            "fewer registers per program, more traffic",
            ("register-pressure",),
        )
