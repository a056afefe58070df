"""Passes over memory that read the same tensor and need nothing of each other.

Groups grow along what they compute: a reader joins its producers. Two results of the same inputs have no such
path between them (an optimizer's new weights and its new momentum; two losses of the same logits), and would
read everything twice. Where the positions are the same, one kernel loads each element once and computes both.

Two passes that do the same to tensors of one shape and have an operand in common, however small (new keys and
new values, put into their caches at the same places), share no bytes to speak of but a launch, what the host
does for it, and the time between two kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from egg.expert.fusion.groups import Groups
from egg.expert.graph import Graph, Node
from egg.expert.parts import Group

JOINED = frozenset(
    {"pointwise", "where", "view", "constant", "triangle", "reduce", "softmax", "norm", "gather"}
)
LEAST_SHARED = 8
"""One part in so many of the bytes of two passes must be read by both."""
MOST_TENSORS = 12
"""That one kernel of siblings reads and writes: each takes registers for addresses and elements."""
ELEMENTWISE = frozenset({"pointwise", "where", "view", "constant", "gather"})
"""What twins consist of: nothing of a row is kept, so both together take few registers."""


def siblings(groups: Groups) -> Iterator[tuple[list[Node], list[Node]]]:
    """Pairs of passes that share enough of what they read to be worth one kernel, the most first."""
    passes = list({id(group): group for group in groups.home.values() if _is_pass(groups, group)}.values())
    reads = [_whole_reads(groups.graph, group) for group in passes]
    moved = [_moved(groups.graph, group) for group in passes]
    found: list[tuple[int, int, int]] = []
    for one, other in combinations(range(len(passes)), 2):
        shared = sum(groups.graph.value(name).bytes for name in reads[one] & reads[other])
        enough = shared * LEAST_SHARED >= moved[one] + moved[other]
        if shared and (enough or _are_twins(groups.graph, passes[one], passes[other])):
            found.append((shared, one, other))
    for _, one, other in sorted(found, key=lambda pair: (-pair[0], pair[1], pair[2])):
        yield passes[one], passes[other]


def few_tensors(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether one kernel has room for what these nodes read and write."""
    group = Group("", tuple(nodes), "")
    return len(group.reads(graph)) + len(group.writes(graph)) <= MOST_TENSORS


def _are_twins(graph: Graph, one: Sequence[Node], other: Sequence[Node]) -> bool:
    """Whether two passes make the same, element by element, of different tensors of one shape."""
    return _described(graph, one) == _described(graph, other) and all(n.op in ELEMENTWISE for n in one)


def _described(graph: Graph, nodes: Sequence[Node]) -> list[object]:
    """The operators of a pass with their attributes, and what each makes."""
    return [
        (node.op, node.attributes, [(graph.value(n).shape, graph.value(n).dtype) for n in node.outputs])
        for node in nodes
    ]


def _is_pass(groups: Groups, group: list[Node]) -> bool:
    return bool(groups.pattern[id(group)].streams) and all(node.op in JOINED for node in group)


def _moved(graph: Graph, nodes: Sequence[Node]) -> int:
    """What a pass reads and writes; of a tensor that it only reads slices of, those."""
    group, inside = Group("", tuple(nodes), ""), {id(node) for node in nodes}
    written = sum(graph.value(name).bytes for name in group.writes(graph))
    return written + sum(_bytes_read(graph, name, inside) for name in group.reads(graph))


def _bytes_read(graph: Graph, name: str, inside: set[int]) -> int:
    whole = graph.value(name).bytes
    readers = [reader for reader in graph.consumers[name] if id(reader) in inside]
    if any(reader.op != "view" or reader["how"] != "slice" for reader in readers):
        return whole
    return min(whole, sum(graph.result(reader).bytes for reader in readers))


def _whole_reads(graph: Graph, nodes: Sequence[Node]) -> set[str]:
    """Values made elsewhere of which a group reads every element in order, not a slice or picked places."""
    made = {name for node in nodes for name in node.outputs}
    inside = {id(node) for node in nodes}
    return {
        name
        for node in nodes
        for name in node.inputs
        if name is not None and name not in made and _is_read_whole(graph, name, inside)
    }


def _is_read_whole(graph: Graph, name: str, inside: set[int]) -> bool:
    for reader in graph.consumers[name]:
        if id(reader) not in inside or (reader.op == "view" and reader["how"] == "slice"):
            continue
        if reader.op == "gather" and reader.inputs[0] == name:
            continue
        if reader.op != "view" or _is_read_whole(graph, reader.output, inside):
            return True
    return False
