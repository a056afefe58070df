"""Groups that grow in every direction: what is computed of one item by one thread, as far as it goes.

Passes and products keep results of a group in memory for others, and so take along what follows one value.
Threads that hold a whole item in registers lose nothing by storing several of its values, or by computing
what stands beside: the more of the work on an item is in one kernel, the less of it goes through memory and
the fewer launches there are. So such a group takes its neighbours one by one, whoever else reads them, as
long as the pattern writes the larger group.

A view or a constant in such a group is index arithmetic. One that others read as well would have to be
stored, so every reader gets a copy of its own first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from egg.expert.emit.names import numbered
from egg.expert.fusion.groups import Groups
from egg.expert.fusion.neighbours import side_producers
from egg.expert.graph import Graph, Node, Value
from egg.expert.pattern import FREE, Pattern, Patterns

MOST_NODES = 160
"""Of a group: what is written out for each of them is compiled."""


def own_views(graph: Graph, patterns: Patterns) -> Graph:
    """The same program with views and constants that one node reads each, where a pattern's groups grow
    so."""
    whole = [pattern for pattern in patterns.values() if pattern.takes_neighbours]
    if not any(pattern.takes_whole(node) for pattern in whole for node in graph.nodes):
        return graph
    values, made = dict(graph.values), list[Node]()
    readers: dict[str, list[int]] = {}
    """Places in ``made`` of the nodes that read a value."""
    for node in reversed(graph.nodes):
        found = readers.pop(node.outputs[0], []) if node.op in FREE else []
        if node.op in FREE and node.output not in graph.results:
            found = found[1:]
        copies = []
        for at in found:
            name = numbered(node.output, values.keys())
            values[name] = _named(values[node.output], name)
            made[at] = _reading(made[at], node.output, name)
            copies.append(Node(node.op, node.inputs, (name,), node.attributes, node.label))
        for one in (*copies, node):
            for name in dict.fromkeys(name for name in one.inputs if name is not None):
                readers.setdefault(name, []).append(len(made))
            made.append(one)
    return graph.rebuilt(tuple(reversed(made)), values)


def _named(value: Value, name: str) -> Value:
    return replace(value, name=name)


def _reading(node: Node, before: str, after: str) -> Node:
    return node.with_inputs(*(after if name == before else name for name in node.inputs))


def grow_whole(groups: Groups, group: list[Node], pattern: Pattern) -> None:
    """Takes neighbours in until none is left that the pattern writes along."""
    refused: set[int] = set()
    while len(group) < MOST_NODES:
        node = next((n for n in _neighbours(groups, group, pattern) if id(n) not in refused), None)
        if node is None:
            return
        side = side_producers(groups, node, group)
        grown = [*group, *side, node]
        fits = all(groups.only_read_by(one, grown) for one in side)
        if fits and not groups.units.circular(grown) and groups.writes(grown, pattern):
            groups.add(group, *side, node)
            refused.clear()
        else:
            refused.add(id(node))


def _neighbours(groups: Groups, group: list[Node], pattern: Pattern) -> Iterator[Node]:
    """Nodes without a group that make what a member reads, or read what one makes, views between them; and
    views that are results."""
    for member in group:
        waiting = [groups.graph.producer(name) for name in member.inputs if name is not None]
        while waiting:
            node = waiting.pop()
            if node is None or id(node) in groups.home:
                continue
            if node.op in FREE:
                waiting += [groups.graph.producer(name) for name in node.inputs if name is not None]
            elif _may_join(groups, node, pattern):
                yield node
    for member in group:
        behind = [reader for name in member.outputs for reader in groups.graph.consumers[name]]
        while behind:
            node = behind.pop(0)
            if id(node) in groups.home:
                continue
            if node.op in FREE:
                if node.output in groups.graph.results:  # stored as it is to lie
                    yield node
                behind += [reader for name in node.outputs for reader in groups.graph.consumers[name]]
            elif _may_join(groups, node, pattern):
                yield node


def _may_join(groups: Groups, node: Node, pattern: Pattern) -> bool:
    return node.op in groups.streamed or pattern.takes_whole(node)
