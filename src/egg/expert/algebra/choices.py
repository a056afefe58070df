"""A gather along a dimension of stacked pieces, as a choice among them.

Colour models write their cases side by side and pick one of them for each element: ``stack((v, q, p, p, t,
v)).gather(dim, case)``. The stack is several times as large as what is chosen from it. A choice by
comparisons with the index reads every distinct piece where it is computed, so that nothing is stored in
between; pieces that stand several times in the stack are compared with all of their places.
"""

from __future__ import annotations

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by, only_reader
from egg.expert.graph import Graph, Node
from egg.expert.sizes import ONE

MOST_PLACES, MOST_PIECES = 32, 6
"""Of a stack, and distinct ones among its pieces."""


def chosen_piece(graph: Graph, node: Node) -> Rewrite | None:
    """``gather(cat(a, b, a), dim, index)`` as ``where(index == 1, b, a)``."""
    if node.op != "gather" or node["how"] != "gather":
        return None
    stack = made_by(graph, node.inputs[0], "cat")
    if stack is None or stack["dim"] != node["dim"] or not only_reader(graph, stack.output):
        return None
    dim, index = node["dim"], graph.value(str(node.inputs[1]))
    pieces = [graph.value(str(name)) for name in stack.inputs]
    around = (*index.shape[:dim], ONE, *index.shape[dim + 1 :])
    places: dict[str, list[int]] = {}
    for at, piece in enumerate(pieces):
        places.setdefault(_source(graph, piece.name), []).append(at)
    if any(piece.shape != around or piece.dtype != pieces[0].dtype for piece in pieces):
        return None
    if not 1 < len(places) <= MOST_PIECES or len(pieces) > MOST_PLACES:
        return None
    draft, made = Draft(graph, node), graph.result(node)
    *others, last = sorted(places.values(), key=len)
    chosen = pieces[last[0]].name
    for found in reversed(others):
        met = [
            draft.add("pointwise", [index.name], index.shape, "eq", "bool", fn="eq", scalars=(None, at))
            for at in found
        ]
        while len(met) > 1:
            either = {"fn": "logical_or", "scalars": ()}
            met[:2] = [draft.add("pointwise", met[:2], index.shape, "or", "bool", **either)]
        chosen = draft.add("where", [met[0], pieces[found[0]].name, chosen], made.shape, "chosen", made.dtype)
    return draft.done()


def _source(graph: Graph, name: str) -> str:
    """A piece by what it is a reshaped view of: all pieces of a stack have one shape."""
    view = made_by(graph, name, "view")
    while view is not None and view["how"] == "reshape":
        name = str(view.inputs[0])
        view = made_by(graph, name, "view")
    return name


RULES: tuple[Rule, ...] = (chosen_piece,)
