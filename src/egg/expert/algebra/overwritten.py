"""New elements in an argument or a buffer, stored there and nowhere else.

A step of decoding writes one row into a cache of thousands: ``cache.index_copy_(2, position, row)``, or
``cache[slots] = rows`` with pages. As values, that is a new cache, which goes over the old one at the end:
the whole cache is read and written twice for a few rows. Where nothing reads the old cache but the
operator that puts the elements in, these may go straight to their places: the new value *is* the old tensor,
what is computed from it reads it there, and a program that returns it hands its argument back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from egg.expert.graph import Graph, Node, Origin
from egg.expert.sizes import ONE

IN_PLACE = "in_place"
"""The attribute of a scatter whose result is the tensor that it begins as, and of the update behind it."""


def stored_in_place(graph: Graph) -> Graph:
    """The graph with scatters into the tensors that the program overwrites anyhow."""
    new: dict[int, Node] = {}
    handed: dict[str, str] = {}
    for update in (node for node in graph.nodes if node.op == "update"):
        leaf, last = (str(name) for name in update.inputs)
        shown = _shown(graph, last)
        node = graph.producer(shown[-1])
        if node is None or len(node.outputs) != 1 or not _is_last_reader(graph, leaf, node, update):
            continue
        scatter = _as_scatter(graph, node, leaf)
        if scatter is not None:
            new |= {id(node): _marked(scatter), id(update): _marked(update)}
            handed |= {name: leaf for name in shown if graph.value(name).shape == graph.value(leaf).shape}
    if not new:
        return graph
    nodes = tuple(new.get(id(node), node) for node in graph.nodes)
    results = tuple(handed.get(str(name), name) for name in graph.results)
    return replace(graph, results=results).rebuilt(nodes)


def _marked(node: Node) -> Node:
    return replace(node, attributes={**node.attributes, IN_PLACE: True})


def _shown(graph: Graph, name: str) -> list[str]:
    """A value, and what it is another shape of, the first such tensor last."""
    found = [name]
    while (node := graph.producer(found[-1])) is not None and node.op == "view" and node["how"] == "reshape":
        found.append(str(node.inputs[0]))
    return found


def _is_last_reader(graph: Graph, leaf: str, node: Node, update: Node) -> bool:
    """Whether nothing but ``node`` needs the elements that are there before, which lie without gaps."""
    value = graph.value(leaf)
    if value.origin is Origin.NODE or not value.contiguous or leaf in graph.results:
        return False
    waiting, readers = [leaf], list[Node]()
    while waiting:
        for reader in graph.consumers[waiting.pop()]:
            if reader.op == "view" and reader["how"] == "reshape" and reader.output not in graph.results:
                waiting.append(reader.output)
            else:
                readers.append(reader)
    return all(reader is node or reader is update for reader in readers)


def _as_scatter(graph: Graph, node: Node, leaf: str) -> Node | None:
    """What puts elements into ``leaf``, as a scatter onto it."""
    made = graph.result(node)
    if not made.contiguous or made.dtype != graph.value(leaf).dtype:
        return None
    if node.op == "scatter":
        return node if len(node.inputs) == 3 and node.inputs[2] == leaf else None
    if node.op != "where" or _shown(graph, str(node.inputs[2]))[-1] != leaf:
        return None
    place = compared_place(graph, graph.producers, str(node.inputs[0]))
    source = graph.value(str(node.inputs[1]))
    if place is None or source.dtype != made.dtype:
        return None
    behind, index = place
    shape = tuple(ONE if made.rank - d == behind else size for d, size in enumerate(made.shape))
    if source.shape != shape or graph.value(index).rank != made.rank:
        return None
    attributes = {"fn": "store", "dim": made.rank - behind, "fill": 0}
    return replace(node, op="scatter", inputs=(source.name, index, leaf), attributes=attributes)


def compared_place(graph: Graph, makers: Mapping[str, Node], name: str) -> tuple[int, str] | None:
    """The dimension, counted from the last as one, along which a condition holds at one place at most, and
    that place: the condition compares the count of places there with something that is the same for all of
    them. ``makers``: the nodes that are looked through."""
    node = makers.get(name)
    if node is None or node.op != "pointwise" or node["fn"] != "eq" or len(node.inputs) != 2:
        return None
    for count, other in (node.inputs, node.inputs[::-1]):
        dim = _counted(graph, makers, str(count))
        own = graph.value(str(other)).shape
        if dim and (dim > len(own) or own[-dim] == ONE):
            return dim, str(other)
    return None


def _counted(graph: Graph, makers: Mapping[str, Node], name: str) -> int:
    """The only dimension of a value that counts its places, from the last as one."""
    shape = graph.value(name).shape
    wide = [len(shape) - dim for dim, size in enumerate(shape) if size != ONE]
    while name in makers and makers[name].op == "view" and makers[name]["how"] == "reshape":
        name = str(makers[name].inputs[0])
    node = makers.get(name)
    counts = node is not None and node.op == "constant" and node.get("range") == (0, 1)
    return wide[0] if counts and len(wide) == 1 else 0
