"""What a product takes along of what its operands are computed by: all of it, or nothing but views.

A 16-bit operand that is computed by the way costs the product its speed, which is worth it where that saves a
pass over memory. It saves none where the computing stops halfway, at something that needs a pass of its own
and is no smaller than the operand: that pass may as well compute the operand. Nor is a copy of a weight taken
along: it is there to lay the weight out as tiles of it are read. Nor is an operand that takes several special
functions: tiles of a product have few warps for them. Nine sines of each element took 170 us in front of a
product on an H200, and 20 us in a pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.emit.triton.scalar import cheap
from egg.expert.graph import HALF, Graph, Node, Origin

MOST_SPECIAL = 4
"""Special functions and divisions of an operand that a product computes."""


def without_half_done(
    graph: Graph, product: Node, taken: Sequence[Node], passes: Sequence[Node]
) -> list[Node]:
    """Of the nodes ``taken`` along, those that are left. ``passes``: nodes that no group has so far and that
    would need a pass of their own."""
    left = {id(node): node for node in taken}
    waits = {id(node) for node in passes}
    for operand in map(str, product.inputs[:2]):
        behind, edge = _behind(graph, operand, left)
        room = graph.value(operand).bytes
        stops = any(id(node) in waits and graph.value(node.outputs[0]).bytes >= room for node in edge)
        copied = any(_copies_weight(graph, node) for node in behind.values())
        halved = graph.value(operand).dtype in HALF and (stops or copied)
        if not halved and sum(map(_is_special, behind.values())) <= MOST_SPECIAL:
            continue
        seen = _views(graph, operand, behind)
        left = {at: node for at, node in left.items() if at in seen or at not in behind}
    return list(left.values())


def _is_special(node: Node) -> bool:
    return node.op == "pointwise" and not cheap(str(node["fn"]))


def _behind(graph: Graph, operand: str, taken: dict[int, Node]) -> tuple[dict[int, Node], list[Node]]:
    """The taken nodes that an operand is made by, and those that make what they read."""
    behind: dict[int, Node] = {}
    edge: list[Node] = []
    waiting = [operand]
    while waiting:
        node = graph.producer(waiting.pop())
        if node is None or id(node) in behind:
            continue
        if id(node) not in taken:
            edge.append(node)
            continue
        behind[id(node)] = node
        waiting += [name for name in node.inputs if name is not None]
    return behind, edge


def _views(graph: Graph, operand: str, behind: dict[int, Node]) -> set[int]:
    """Those directly in front of the product."""
    seen: set[int] = set()
    node = graph.producer(operand)
    while node is not None and node.op == "view" and id(node) in behind:
        seen.add(id(node))
        node = graph.producer(str(node.inputs[0]))
    return seen


def _copies_weight(graph: Graph, node: Node) -> bool:
    """Whether a node changes nothing but the layout of a weight."""
    if node.op != "pointwise" or node["fn"] != "cast":
        return False
    name = str(node.inputs[0])
    same = graph.value(name).dtype == graph.result(node).dtype
    while (view := graph.producer(name)) is not None and view.op == "view":
        name = str(view.inputs[0])
    return same and graph.value(name).origin is Origin.PARAMETER
