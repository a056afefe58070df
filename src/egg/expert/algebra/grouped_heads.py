"""Grouped-query attention: several heads of queries read the same keys and values.

Programs repeat the keys and values of a group for every head of queries, by an expansion. Read as repeated,
they come from memory once for each head. Where all queries see the same keys, the queries of a group are
queries of one head instead, so that one tile reads keys and values once for all of them: with one new token,
which is the case of a decoder, that is most of the time.

A library's attention takes fewer heads of keys than of queries as they are (:func:`by_the_library`), where it
is told so: heads that merely broadcast are computed in fp32, by two products and a softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by
from egg.expert.graph import HALF, Graph, Node, Value, contiguous_stride
from egg.expert.sizes import ONE, Size

HEADS = 1
"""The dimension of the heads: batch, heads, places, depth."""


def spread(graph: Graph, node: Node) -> Rewrite | None:
    """Operands that broadcast (one head of keys for all heads of queries, one table of queries for the whole
    batch) as views of as many heads as there are: kernels read views where they lie, and a library, which
    would compute in fp32 by two products and a softmax, has kernels for as many heads."""
    if node.op != "attention":
        return None
    made, operands = graph.result(node).shape[:-2], [graph.value(str(name)) for name in node.inputs[:3]]
    if all(value.shape[:-2] == made for value in operands):
        return None
    draft, inputs = Draft(graph, node), list(node.inputs)
    for place, value in enumerate(operands):
        if value.shape[:-2] != made:
            shape = (*made, *value.shape[-2:])
            inputs[place] = draft.add("view", [value.name], shape, "heads", value.dtype, how="expand")
    draft.add("attention", inputs, graph.result(node).shape, "attention", **node.attributes)
    return draft.done()


def grouped(graph: Graph, node: Node) -> Rewrite | None:
    """Queries of all heads of a group as the queries of one head."""
    if node.op != "attention" or node["causal"] or not _shared(graph, node):
        return None
    q, k, v = (graph.value(str(name)) for name in node.inputs[:3])
    keys, values = repeated(graph, k.name), repeated(graph, v.name)
    if keys is None or values is None or q.dtype not in HALF or q.rank != 4:
        return None
    if keys.shape[HEADS] != values.shape[HEADS] or k.shape[HEADS] != v.shape[HEADS]:
        return None
    draft, made = Draft(graph, node), graph.result(node)
    rows = share_of(graph, k.name) * q.shape[2]
    lead = (q.shape[0], keys.shape[HEADS], rows)
    queries = draft.add("view", [q.name], (*lead, q.shape[3]), "queries", how="reshape")
    inputs = [queries, keys.name, values.name, *node.inputs[3:]]
    if (sink := node.inputs[4] if len(node.inputs) > 4 else None) is not None:
        whole = draft.add("view", [sink], (*q.shape[:3], ONE), "sinks", graph.value(sink).dtype, how="expand")
        inputs[4] = draft.add("view", [whole], (*lead, ONE), "sinks", graph.value(sink).dtype, how="reshape")
    result = draft.add("attention", inputs, (*lead, made.shape[3]), "grouped", **node.attributes)
    draft.add("view", [result], made.shape, "heads", how="reshape")
    return draft.done()


def _shared(graph: Graph, node: Node) -> bool:
    """Whether every head and every query sees the same keys, through the same functions of scores."""
    shapes = [graph.value(name).shape for name in (*node.inputs[3:4], *node.inputs[5:]) if name is not None]
    return all(len(shape) == 4 and shape[HEADS] == ONE and shape[2] == ONE for shape in shapes)


def repeated(graph: Graph, name: str) -> Value | None:
    """The keys or values that an operand repeats for every head of a group; ``None`` where it does not."""
    flat = made_by(graph, name, "view")
    spread = made_by(graph, str(flat.inputs[0]), "view") if flat is not None else None
    apart = made_by(graph, str(spread.inputs[0]), "view") if spread is not None else None
    if flat is None or spread is None or apart is None:
        return None
    if (flat["how"], spread["how"], apart["how"]) != ("reshape", "expand", "reshape"):
        return None
    source, whole = graph.value(str(apart.inputs[0])), graph.value(name)
    one, many = graph.result(apart).shape, graph.result(spread).shape
    if source.rank != 4 or len(one) != 5 or whole.rank != 4:
        return None
    batch, heads, *rest = source.shape
    fits = one == (batch, heads, ONE, *rest) and many == (batch, heads, many[2], *rest)
    # A reshape keeps the number of elements, so the heads are as many, whatever they are called.
    return source if fits and (whole.shape[0], *whole.shape[2:]) == (batch, *rest) else None


def share_of(graph: Graph, name: str) -> Size:
    """How often a repeated operand has each of its heads."""
    flat = graph.producers[name]
    return graph.value(str(flat.inputs[0])).shape[2]


def by_the_library(graph: Graph, left: Callable[[str], bool]) -> Graph:
    """Attention that a library computes reads keys and values as they are before they are repeated, and its
    result lies as its flash kernel makes it: by places, then by heads."""
    nodes, values = list[Node](), dict(graph.values)
    laid: set[str] = set()
    for node in graph.nodes:
        if _is_called(node) and left(node.output) and graph.value(node.output).rank == 4:
            node = _with_few_heads(graph, node)
            values[node.output] = _by_places(values[node.output])
            laid.add(node.output)
        elif node.op == "view" and node["how"] == "permute" and node.inputs[0] in laid:
            source = values[str(node.inputs[0])]
            stride = tuple(source.stride[dim] for dim in node["dims"])
            values[node.output] = replace(values[node.output], stride=stride)
        nodes.append(node)
    return _without_unread(graph, nodes, values) if laid else graph


def _is_called(node: Node) -> bool:
    """Whether a library has attention like it: without functions of the score, without a sink."""
    return node.op == "attention" and len(node.inputs) <= 4


def _one_head(graph: Graph, name: str) -> Value | None:
    """Keys or values of one head, which an expansion gives to all heads of queries (multi-query)."""
    spread = made_by(graph, name, "view")
    source = graph.value(str(spread.inputs[0])) if spread is not None else None
    whole = graph.value(name).shape
    if spread is None or source is None or spread["how"] != "expand" or source.rank != 4:
        return None
    return source if source.shape == (whole[0], ONE, *whole[2:]) else None


def _with_few_heads(graph: Graph, node: Node) -> Node:
    keys, values = (repeated(graph, str(name)) or _one_head(graph, str(name)) for name in node.inputs[1:3])
    if keys is None or values is None or node.get("fill") is not None:
        return node
    inputs = (node.inputs[0], keys.name, values.name, *node.inputs[3:])
    return replace(node, inputs=inputs, attributes={**node.attributes, "grouped": True})


def _by_places(value: Value) -> Value:
    batch, heads, places, depth = value.shape
    inner = contiguous_stride((batch, places, heads, depth))
    return replace(value, stride=(inner[0], inner[2], inner[1], inner[3]))


def _without_unread(graph: Graph, nodes: list[Node], values: dict[str, Value]) -> Graph:
    """Views that nothing reads any more would be made in memory for nothing."""
    kept: list[Node] = []
    needed = set(graph.results)
    for node in reversed(nodes):
        if node.op == "view" and not needed.intersection(node.outputs):
            continue
        needed.update(name for name in node.inputs if name is not None)
        kept.append(node)
    return graph.rebuilt(tuple(reversed(kept)), values)


RULES: tuple[Rule, ...] = (grouped, spread)
