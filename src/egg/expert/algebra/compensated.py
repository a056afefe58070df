"""Sums whose rounding errors are kept: 16-bit values that must be what memory would hold.

Values of 16 bits stay in fp32 within a kernel, which is as good as rounding each, or better. Not so where
a program asks what was rounded off (Kahan, Fast2Sum): ``k += old - (p := old + k)`` is zero in exact
arithmetic, and all of the compensation is in the difference. There the sum and what it is made of are rounded
as PyTorch rounds them.
"""

from __future__ import annotations

from collections.abc import Iterator

from egg.expert.graph import HALF, Graph, Node


def compensating(graph: Graph) -> set[str]:
    """The 16-bit values whose rounding errors the program computes."""
    return _with_terms(graph, {name for node in graph.nodes for name in _of_error(graph, node)})


def _with_terms(graph: Graph, names: set[str]) -> set[str]:
    """Values, and all in 16 bits that they are made of: other terms leave another error."""
    waiting, found = list(names), set(names)
    while waiting:
        terms = (graph.producer(str(term)) for term in graph.producers[waiting.pop()].inputs)
        new = {n.output for n in terms if n is not None and _is_half(graph, n)} - found
        found |= new
        waiting += new
    return found


def _of_error(graph: Graph, node: Node) -> Iterator[str]:
    """A sum that one of its own terms is subtracted from, or it from that."""
    if not _adds(graph, node, ("sub",)):
        return
    for name, other in (node.inputs, node.inputs[::-1]):
        made = graph.producer(str(name))
        if made is not None and _adds(graph, made, ("add", "sub")) and other in made.inputs:
            yield made.output


def _adds(graph: Graph, node: Node, functions: tuple[str, ...]) -> bool:
    two = node.op == "pointwise" and node["fn"] in functions and len(node.inputs) == 2
    return two and _is_half(graph, node)


def _is_half(graph: Graph, node: Node) -> bool:
    """Whether a node is a function of elements in 16 bits, which no cast has rounded."""
    return node.op == "pointwise" and node["fn"] != "cast" and graph.result(node).dtype in HALF
