"""Recurrences in disguise: a decaying total, computed at all places at once by doubling.

What a loop over a sequence computes as ``total = decay * total + taken``, programs on whole tensors compute
in rounds: a place that knows the last ``reach`` contributions and what is left of anything before them looks
``reach`` places back and knows twice as many. Ten rounds over a thousand places read and write everything
ten times; a scan does so once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by
from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE, Size, as_size


@dataclass(frozen=True)
class Shift:
    """A value as it was so many places before, with a number where nothing was."""

    source: str
    dim: int
    reach: int


@dataclass(frozen=True)
class Round:
    """``total + decay * (total, reach places before)``."""

    total: str
    decay: str
    dim: int
    reach: int


def doubled_recurrence(graph: Graph, node: Node) -> Rewrite | None:
    """Rounds that reach 1, 2, 4, ... places back until they reach through the whole dimension: a scan."""
    last = _round(graph, node)
    if last is None:
        return None
    result = graph.result(node)
    whole = last.reach < result.shape[last.dim].value <= 2 * last.reach
    first = _first_round(graph, last) if whole and result.dtype in FLOATS else None
    if first is None:
        return None
    operands = (graph.value(first.total), graph.value(first.decay))
    if any((value.shape, value.dtype) != (result.shape, result.dtype) for value in operands):
        return None
    draft = Draft(graph, node)
    draft.add(
        "scan",
        (first.total, first.decay),
        result.shape,
        "scan",
        fn="decayed",
        dim=first.dim,
        reverse=False,
        exclusive=False,
        rounds=last.reach.bit_length(),
    )
    return draft.done()


def _first_round(graph: Graph, last: Round) -> Round | None:
    """The one that reaches a single place back; ``None`` where they are not each other's doubles."""
    later = last
    while later.reach > 1:
        maker = graph.producer(later.total)
        earlier = _round(graph, maker) if maker is not None else None
        if earlier is None or (earlier.dim, 2 * earlier.reach) != (last.dim, later.reach):
            return None
        moved = (Shift(earlier.decay, earlier.dim, earlier.reach), 1)
        if not any(
            one == earlier.decay and _shift(graph, other) == moved
            for one, other in _factors(graph, later.decay)
        ):
            return None
        later = earlier
    return later


def _round(graph: Graph, node: Node) -> Round | None:
    for total, added in _operands(node, "add"):
        for decay, other in _factors(graph, added):
            match _shift(graph, other):
                case (Shift(source=source, dim=dim, reach=reach), 0) if source == total:
                    return Round(total, decay, dim, reach)
    return None


def _factors(graph: Graph, name: str) -> Iterator[tuple[str, str]]:
    maker = made_by(graph, name, "pointwise")
    return _operands(maker, "mul") if maker is not None else iter(())


def _operands(node: Node, fn: str) -> Iterator[tuple[str, str]]:
    """Those of a sum or a product of two tensors, in both orders."""
    if node.op == "pointwise" and node["fn"] == fn and not node["scalars"] and len(node.inputs) == 2:
        a, b = map(str, node.inputs)
        yield a, b
        yield b, a


def _shift(graph: Graph, name: str) -> tuple[Shift, int | float] | None:
    """What is shifted how, and the number in front of it: a front part, padded to where the whole ended."""
    pad = made_by(graph, name, "pad")
    cut = made_by(graph, pad.inputs[0], "view") if pad is not None else None
    if pad is None or cut is None or cut["how"] != "slice":
        return None
    source = graph.value(str(cut.inputs[0]))
    front = all(as_size(s) == Size(0) for s in cut["starts"]) and all(as_size(s) == ONE for s in cut["steps"])
    moved = [dim for dim, before in enumerate(pad["before"]) if as_size(before) != Size(0)]
    if not front or len(moved) != 1 or graph.result(pad).shape != source.shape:
        return None
    (dim,), kept = moved, graph.result(cut).shape
    reach = as_size(pad["before"][dim]).value
    others_whole = all(size == kept[at] for at, size in enumerate(source.shape) if at != dim)
    if not others_whole or kept[dim].value + reach != source.shape[dim].value:
        return None
    return Shift(source.name, dim, reach), pad["value"]


RULES: tuple[Rule, ...] = (doubled_recurrence,)
