"""Values that something discrete is decided by: in 16 bits they must be what memory would hold.

Codes of a quantised cache, the places of the largest, the branch that a comparison takes: such a result is
right or wrong, never near. A value that fp32 registers hold to more digits than PyTorch's 16 bits do lies now
and then on the other side of a border, or breaks a tie that PyTorch has, and the code is another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from egg.expert.graph import HALF, Graph, Node

MOVES = frozenset({"view", "cat", "joined", "pad", "gather", "scatter", "where", "constant", "triangle"})
"""What puts elements elsewhere and computes none."""
SELECTING = frozenset({"max", "min", "any", "all", "argmax", "argmin"})


def deciding(graph: Graph) -> set[str]:
    """The 16-bit values computed on the way to a discrete one that the program returns or keeps."""
    waiting = [str(name) for node in _decisions(graph) for name in node.inputs if name is not None]
    reached, found = set(waiting), set[str]()
    while waiting:
        name = waiting.pop()
        node = graph.producer(name)
        if node is None or not graph.value(name).floating:
            continue
        if graph.value(name).dtype in HALF and _computes(node):
            found.add(name)
        new = {str(term) for term in node.inputs if term is not None} - reached
        reached |= new
        waiting += new
    return found


def _decisions(graph: Graph) -> Iterator[Node]:
    """Nodes that make something discrete of numbers, where that is shown outside as what it is."""
    shown = {str(name) for name in graph.results if name is not None}
    shown |= {str(node.inputs[1]) for node in graph.nodes if node.op == "update"}
    for node in reversed(graph.nodes):
        exact = [name for name in node.outputs if name in shown and not graph.value(name).floating]
        if not exact:
            continue
        given = [str(name) for name in node.inputs if name is not None]
        if any(graph.value(name).floating for name in given) and node.op != "update":
            yield node
        shown |= {name for name in given if not graph.value(name).floating}


def _computes(node: Node) -> bool:
    """Whether elements are made that no cast has rounded."""
    if len(node.outputs) != 1 or node.op in MOVES:
        return False
    if node.op == "reduce":
        return node["fn"] not in SELECTING
    return node.op != "pointwise" or node["fn"] != "cast"
