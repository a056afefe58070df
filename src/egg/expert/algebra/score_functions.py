"""What scores of attention go through between their product and the mask, function by function.

``cap * tanh(scores / cap)`` keeps scores below a cap, a learned temperature of each head multiplies them: a
chain of pointwise functions of the score. A further operand is the same for all keys (a number of the head or
of the query), so a kernel reads it once, before it goes over the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from egg.expert.algebra.rewrite import only_reader
from egg.expert.emit.triton.scalar import SUPPORTED
from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE, Size

_NO_STEP = frozenset({"cast", "where", "masked_fill"})


@dataclass(frozen=True)
class Step:
    """One function of the score, with its numbers as a pointwise node has them."""

    fn: str
    scalars: tuple[Any, ...] = ()
    other: str | None = None
    """A further operand, which broadcasts to rows of one column."""
    before: bool = False
    """Whether that stands before the score."""

    @property
    def place(self) -> int | None:
        """Where the score stands among the operands; ``None`` where it is the only one."""
        return None if self.other is None else int(self.before)


def multiplied(number: float | Size) -> Step:
    return Step("mul", (None, number))


def step_of(graph: Graph, node: Node) -> tuple[str, Step] | None:
    """The score that a node reads, and what it does with it; ``None`` where it is no function of one score.

    Of two operands that one is the score which has a column for every key.
    """
    if node.op != "pointwise" or node["fn"] in _NO_STEP or node["fn"] not in SUPPORTED:
        return None
    names, scalars = [str(name) for name in node.inputs], tuple(node.get("scalars") or ())
    made = graph.result(node)
    if made.dtype not in FLOATS or any(graph.value(name).dtype not in FLOATS for name in names):
        return None
    whole = [name for name in names if graph.value(name).shape == made.shape]
    if len(whole) != 1 or len(names) > 2 or node.get("exact"):
        return None
    others = [name for name in names if name != whole[0]]
    if not others:
        return whole[0], Step(node["fn"], scalars)
    if not _by_row(graph, others[0], made.shape):
        return None
    return whole[0], Step(node["fn"], scalars, others[0], names[0] == others[0])


def leads_to_product(graph: Graph, name: str) -> bool:
    """Whether a value is a chain of functions of a product that nothing else reads."""
    while (node := graph.producer(name)) is not None and only_reader(graph, name):
        if node.op == "matmul":
            return True
        found = step_of(graph, node)
        if found is not None:
            name = found[0]
        elif (node.op == "view" and node["how"] == "reshape") or (
            node.op == "pointwise" and node["fn"] == "cast"
        ):
            name = str(node.inputs[0])
        else:
            return False
    return False


def _by_row(graph: Graph, name: str, shape: tuple[Size, ...]) -> bool:
    """Whether a value has one number for all keys of a row."""
    own = graph.value(name).shape
    return own[-1:] in ((), (ONE,)) and all(
        size in (ONE, other) for size, other in zip(reversed(own), reversed(shape), strict=False)
    )
