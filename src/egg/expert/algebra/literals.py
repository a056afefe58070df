"""Numbers that a program lists: made once, not by a launch for each of them."""

from __future__ import annotations

from egg.expert.algebra.rewrite import Rewrite, instead, is_number, made_by
from egg.expert.graph import LITERAL, Graph, Node, Origin

MOST_JOINED = 16
"""Pieces that a kernel joins, at most: up to there, numbers stand in the text of the kernel."""


def listed(graph: Graph, node: Node) -> Rewrite | None:
    """``torch.tensor([...])`` is captured as a concatenation of single numbers, since any of them may follow
    from a size. Where none does and there are many, the tensor is a literal, which the module keeps beside
    one of its weights: on the weight's device, and anew where that has moved."""
    if node.op != "cat" or len(node.inputs) <= MOST_JOINED or graph.result(node).rank != 1:
        return None
    makers = [made_by(graph, name, "constant") for name in node.inputs]
    numbers = [maker.get("fill") for maker in makers if maker is not None]
    single = all(graph.value(str(name)).shape[0].number == 1 for name in node.inputs)
    plain = all(not graph.value(str(name)).shape[0].factors for name in node.inputs)
    if len(numbers) < len(makers) or not all(map(is_number, numbers)) or not (single and plain):
        return None
    beside = next((v.name for v in graph.values.values() if v.origin is Origin.PARAMETER), None)
    if beside is None:
        return None
    attributes = {"target": LITERAL, "arguments": (repr(numbers),), "keywords": {}}
    return instead(Node("library", (beside,), node.outputs, attributes, LITERAL))


RULES = (listed,)
