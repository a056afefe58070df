"""Indices that say where rows go, and that rows are read by as well: message passing over a graph's edges.

``total[dst]`` at an edge that was added up at ``dst`` reads the edge's own place. To see that, scatters and
gathers by the same numbers get index arithmetic of their own: views of the index, copied for each reader, so
that whatever computes a reader holds all of them. PyTorch refuses a scatter by an index out of range, so the
gathers need not ask again whether a number is negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from egg.expert.graph import Graph, Node, Value
from egg.expert.sizes import Size


def numbers(graph: Graph, name: str) -> str:
    """What a value's numbers are, in order: equal texts mean equal numbers.

    Views that keep every element do not count, nor does ``where(i < 0, i + size, i)``: this is for indices of
    which one is in range. Two slices of one tensor are compared by where they begin.
    """
    node = graph.producer(name)
    if node is None or not node.inputs:
        return name
    source = str(node.inputs[0])
    if _keeps(graph, node):
        return numbers(graph, source)
    if node.op == "view" and node["how"] == "slice":
        made = [size.code() for size in graph.result(node).shape]
        return f"{numbers(graph, source)}[{node['starts']}, {node['steps']}, {made}]"
    plain = _unwrapped(graph, name)
    return name if plain == name else numbers(graph, plain)


def own_indices(graph: Graph) -> Graph:
    """The same program; each scatter and gather by numbers that rows are joined by has its own index."""
    joined = {id(n): _joined_by(graph, n) for n in graph.nodes if n.op == "scatter" and n["fn"] != "store"}
    read = {id(n): _gathered_by(graph, n) for n in graph.nodes if joined and n.op == "gather"}
    often = Counter([*joined.values(), *read.values()])
    readers = {at for at, key in {**joined, **read}.items() if key in joined.values() and often[key] > 1}
    if not readers:
        return graph
    copies, nodes = _Copies(graph), list[Node]()
    for node in graph.nodes:
        if id(node) in readers:
            index = str(node.inputs[1])
            plain = _unwrapped(graph, index) if node.op == "gather" else index
            made, name = copies.of(plain)
            nodes += made
            node = node.with_inputs(node.inputs[0], name, *node.inputs[2:])
        nodes.append(node)
    return graph.rebuilt(tuple(nodes), copies.values)


def _joined_by(graph: Graph, node: Node) -> tuple[str, Size]:
    """The numbers that rows are joined by, and how many places there are."""
    return numbers(graph, str(node.inputs[1])), graph.result(node).shape[node["dim"]]


def _gathered_by(graph: Graph, node: Node) -> tuple[str, Size]:
    """The numbers that rows are gathered by, and how many rows there are."""
    table = graph.value(str(node.inputs[0]))
    dim = (node.get("dim") or 0) % max(table.rank, 1)
    return numbers(graph, str(node.inputs[1])), table.shape[dim]


def _keeps(graph: Graph, node: Node) -> bool:
    """Whether a view has all elements of its operand, in their order."""
    if node.op != "view" or node["how"] not in ("reshape", "expand"):
        return False
    return graph.value(str(node.inputs[0])).elements == graph.result(node).elements


def _unwrapped(graph: Graph, name: str) -> str:
    """The index that counts from the end where it is negative, before that was made of it."""
    node = graph.producer(name)
    if node is None or node.op != "where":
        return name
    condition, moved, plain = map(str, node.inputs)
    below, added = graph.producer(condition), graph.producer(moved)
    if below is None or added is None or below.get("fn") != "lt" or added.get("fn") != "add":
        return name
    zero = tuple(below.get("scalars", ())) == (None, 0) and len(added.inputs) == 1
    return plain if zero and below.inputs == added.inputs == (plain,) else name


@dataclass
class _Copies:
    """Views of an index, copied."""

    graph: Graph
    values: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = dict(self.graph.values)

    def of(self, name: str) -> tuple[list[Node], str]:
        """Nodes that make a value anew as far as it is a view, and its new name."""
        node = self.graph.producer(name)
        if node is None or node.op != "view":
            return [], name
        before, source = self.of(str(node.inputs[0]))
        made = next(self._names(name))
        self.values[made] = replace(self.graph.value(name), name=made)
        return [*before, replace(node, inputs=(source,), outputs=(made,))], made

    def _names(self, stem: str) -> Iterator[str]:
        count = 1
        while True:
            if (name := f"{stem}_own_{count}") not in self.values:
                yield name
            count += 1
