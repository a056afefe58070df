"""Attention written out as products and a softmax, recognised and put together."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, is_number, made_by, only_reader
from egg.expert.graph import Graph, Node
from egg.expert.sizes import Size


@dataclass(frozen=True)
class Scores:
    """What stands between the products: scaled, and added a mask to or not."""

    name: str
    scale: float | Size
    mask: str | None


def attention(graph: Graph, node: Node) -> Rewrite | None:
    """``softmax(q @ k^T * scale + mask) @ v`` as one node.

    Everything in between must be read by nobody else, or it would be computed twice.
    """
    if node.op != "matmul" or len(node.inputs) != 2:
        return None
    soft = made_by(graph, node.inputs[0], "softmax")
    if soft is None or soft["log"] or soft["dim"] != graph.result(soft).rank - 1:
        return None
    if not only_reader(graph, soft.output) or not only_reader(graph, str(soft.inputs[0])):
        return None
    found = _scores(graph, str(soft.inputs[0]))
    product = made_by(graph, found.name, "matmul") if found is not None else None
    if found is None or product is None or len(product.inputs) != 2 or not only_reader(graph, found.name):
        return None
    q, transposed, v = str(product.inputs[0]), str(product.inputs[1]), str(node.inputs[1])
    q, scale = _scaled(graph, q, found.scale)
    view = made_by(graph, transposed, "view")
    if view is None or scale is None or not _swaps_last(view):
        return None
    k = str(view.inputs[0])
    ranks = {graph.value(name).rank for name in (q, k, v)}
    leads = {graph.value(name).shape[:-2] for name in (q, k, v)}
    if len(ranks) != 1 or len(leads) != 1:
        return None
    draft = Draft(graph, node)
    shape = graph.result(node).shape
    draft.add("attention", [q, k, v, found.mask], shape, "attention", causal=False, scale=scale)
    return draft.done()


def _scores(graph: Graph, name: str) -> Scores | None:
    """Back through a mask that is added and a number that is multiplied."""
    mask: str | None = None
    node = graph.producer(name)
    if node is not None and node.op == "pointwise" and node["fn"] == "add" and len(node.inputs) == 2:
        first, second = map(str, node.inputs)
        if graph.value(first).shape == graph.result(node).shape and only_reader(graph, first):
            name, mask = first, second
            if graph.value(mask).dtype != graph.value(name).dtype:
                return None
    node = graph.producer(name)
    number = _multiplier(node)
    if node is not None and number is not None and only_reader(graph, str(node.inputs[0])):
        return Scores(str(node.inputs[0]), number, mask)
    return Scores(name, 1.0, mask)


def _scaled(graph: Graph, q: str, scale: float | Size) -> tuple[str, float | Size | None]:
    """A number that was multiplied into q beforehand."""
    node = graph.producer(q)
    number = _multiplier(node)
    if node is None or number is None:
        return q, scale
    if isinstance(number, Size) or isinstance(scale, Size):
        plain = scale if isinstance(number, Size) else number
        return str(node.inputs[0]), (number if isinstance(number, Size) else scale) if plain == 1.0 else None
    return str(node.inputs[0]), number * scale


def _multiplier(node: Node | None) -> float | Size | None:
    if node is None or node.op != "pointwise" or len(node.inputs) != 1:
        return None
    match node["fn"], tuple(node.get("scalars") or ()):
        case "mul", (None, number) | (number, None) if is_number(number) or isinstance(number, Size):
            return number if isinstance(number, Size) else float(number)
        case "div", (None, number) if is_number(number) and number:
            return 1.0 / number
    return None


def _swaps_last(view: Node) -> bool:
    if view["how"] != "permute":
        return False
    rank = len(view["dims"])
    return tuple(view["dims"]) == (*range(rank - 2), rank - 1, rank - 2)


RULES: tuple[Rule, ...] = (attention,)
