"""Operators that do what another one did: one of them is enough.

Authors write ``k.unsqueeze(-1)`` or ``table[index]`` wherever they need it. Two operators are twins where
they are of one kind, with the same attributes, and their operands are the same or twins. Of costly ones the
first stays: products, statistics, selections, whatever moves elements, and views of what is computed, which
two groups would store twice. Pointwise twins may both stay: each reader computes its own from what lies in
memory, which is cheaper than to store it. So may gathers of long rows: to read a table's rows again takes half
of what it takes to store them and read them back.
"""

from __future__ import annotations

from egg.expert.graph import Graph, Node, gathered_row

COSTLY = frozenset(
    {"matmul", "conv", "reduce", "norm", "softmax", "scan", "pool", "selection", "scatter", "resample"}
)
SEEN_THROUGH = frozenset({"view", "pointwise", "where", "constant", "cat", "pad", "triangle", "gather"})
LINE = 128
"""Bytes of a row that is read at the full speed of memory wherever it lies."""


def without_twins(graph: Graph) -> Graph:
    """The graph with the first of each set of costly twins in the place of the others."""
    first: dict[tuple[object, ...], Node] = {}
    same: dict[str, str] = {}
    """By value: the first one that is equal to it."""
    instead: dict[str, str] = {}
    for node in graph.nodes:
        if node.op not in COSTLY | SEEN_THROUGH:
            continue
        operands = tuple(same.get(str(name), name) for name in node.inputs)
        twin = first.setdefault((node.op, repr(sorted(node.attributes.items())), operands), node)
        if twin is node or not _equal(graph, node, twin):
            continue
        same |= {own: same.get(other, other) for own, other in zip(node.outputs, twin.outputs, strict=True)}
        kept = any(name in graph.results for name in node.outputs)
        shown = node.op == "view" and _is_of_computed(graph, node)
        if not kept and (node.op in COSTLY or shown or _gathers_short_rows(graph, node)):
            instead |= dict(zip(node.outputs, twin.outputs, strict=True))
    if not instead:
        return graph
    nodes = tuple(
        node.with_inputs(*(instead.get(str(name), name) for name in node.inputs)) for node in graph.nodes
    )
    return graph.rebuilt(nodes)


def _is_of_computed(graph: Graph, view: Node) -> bool:
    """Whether a view shows something else than an argument or a constant, which readers see through it."""
    source = graph.producer(str(view.inputs[0]))
    while source is not None and source.op == "view":
        source = graph.producer(str(source.inputs[0]))
    return source is not None and source.op != "constant"


def _gathers_short_rows(graph: Graph, node: Node) -> bool:
    if node.op != "gather":
        return False
    result = graph.result(node)
    return gathered_row(graph, node) * result.bytes < LINE * result.elements.value


def _equal(graph: Graph, node: Node, twin: Node) -> bool:
    """In everything that its readers see."""
    if len(node.outputs) != len(twin.outputs):
        return False
    pairs = [
        (graph.value(own), graph.value(other)) for own, other in zip(node.outputs, twin.outputs, strict=True)
    ]
    return all((a.shape, a.stride, a.dtype, a.lent) == (b.shape, b.stride, b.dtype, b.lent) for a, b in pairs)
