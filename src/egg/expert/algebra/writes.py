"""Tensors that a loop fills place by place.

``centroids[:, i] = farthest`` is, as an operator, a concatenation: what stood before the place, what is
written, what stood behind it. The next round takes that apart and joins it again, so a loop of n rounds would
move n tensors of n places. Joined directly, the pieces are stored once, and the tensors between are gone:
what a later round reads at a place is the piece there (:func:`~egg.expert.algebra.views.piece_of_cat`).
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by
from egg.expert.algebra.views import piece_shown
from egg.expert.graph import Graph, Node
from egg.expert.sizes import ONE, Size, aligned, as_size


def filled_by_places(graph: Graph, node: Node) -> Rewrite | None:
    """A concatenation of slices of another one: of the pieces that the slices show, where nothing else reads
    the tensor between."""
    if node.op != "cat":
        return None
    draft, inputs = Draft(graph, node), list[str]()
    for name in map(str, node.inputs):
        shown = _shown(graph, name, int(node["dim"]), draft)
        inputs += [name] if shown is None else shown
    if inputs == list(node.inputs):
        return None
    draft.add("cat", inputs, graph.result(node).shape, "cat", dim=node["dim"])
    return draft.done()


def untouched(graph: Graph, node: Node) -> Rewrite | None:
    """A slice of a tensor in parts that lies where nothing was written, so one number is everywhere in it."""
    if node.op != "view" or node["how"] != "slice" or any(as_size(step) != ONE for step in node["steps"]):
        return None
    if made_by(graph, node.inputs[0], "cat") is None:
        return None
    shown = graph.result(node)
    constant = _constant_there(graph, node.output, [(0,)] * shown.rank, shown.shape)
    if constant is None:
        return None
    draft = Draft(graph, node)
    draft.add("constant", (), shown.shape, "rest", shown.dtype, **constant.attributes)
    return draft.done()


def _constant_there(
    graph: Graph, name: str, starts: list[tuple[int, ...]], shape: Sequence[Size]
) -> Node | None:
    """What fills the part of a value that begins at ``starts``, through slices and concatenations that were
    joined one after the other; places are compared at all captured sizes."""
    while (node := graph.producer(name)) is not None:
        if node.op == "constant":
            return node if "fill" in node.attributes else None
        if node.op == "view" and node["how"] == "slice" and all(as_size(s) == ONE for s in node["steps"]):
            name = str(node.inputs[0])
            starts = [_summed(a, as_size(b).values) for a, b in zip(starts, node["starts"], strict=True)]
        elif node.op == "cat":
            dim, at = int(node["dim"]), (0,)
            end = _summed(starts[dim], shape[dim].values)
            for piece in map(str, node.inputs):
                behind = _summed(at, graph.value(piece).shape[dim].values)
                if _not_above(at, starts[dim]) and _not_above(end, behind):
                    starts[dim] = tuple(a - b for a, b in aligned(starts[dim], at))
                    name = piece
                    break
                at = behind
            else:
                return None
        else:
            return None
    return None


def _not_above(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x <= y for x, y in aligned(a, b))


def _shown(graph: Graph, name: str, dim: int, draft: Draft) -> list[str] | None:
    """The pieces of another concatenation that a slice of it shows, compared at all captured sizes.

    ``None`` where it is no such slice, where it cuts a piece that is not one number everywhere, and where the
    tensor between is wanted as a whole.
    """
    cut = made_by(graph, name, "view")
    cat = made_by(graph, cut.inputs[0], "cat") if cut is not None else None
    if cut is None or cat is None or cat["dim"] != dim or not _is_between(graph, cat):
        return None
    shown, begin = graph.result(cut), as_size(cut["starts"][dim])
    sizes = [graph.value(str(piece)).shape[dim] for piece in cat.inputs]
    count = max(len(size.values) for size in (begin, shown.shape[dim], *sizes))
    start, length, *lengths = (_column(size, count) for size in (begin, shown.shape[dim], *sizes))
    end = _summed(start, length)
    found, at = list[str](), (0,) * count
    for piece, size, own in zip(map(str, cat.inputs), sizes, lengths, strict=True):
        behind = _summed(at, own)
        first = tuple(map(max, start, at))
        kept = tuple(max(0, stop - begins) for begins, stop in zip(first, map(min, end, behind), strict=True))
        at = behind
        if graph.value(piece).dtype != shown.dtype:
            return None
        if kept == own:
            found.append(piece)
        elif any(kept):
            constant, left = made_by(graph, piece, "constant"), _in_terms_of(kept, shown.shape[dim], size)
            if constant is None or "fill" not in constant.attributes or left is None:
                return None
            shape = [left if d == dim else s for d, s in enumerate(graph.value(piece).shape)]
            found.append(draft.add("constant", (), shape, "rest", **constant.attributes))
    return found


def _column(size: Size, count: int) -> tuple[int, ...]:
    """A size at each captured one."""
    return size.values * (count // len(size.values))


def _summed(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in aligned(a, b))


def _in_terms_of(values: tuple[int, ...], *sizes: Size) -> Size | None:
    """The size with these values that is a number, or a multiple of a given one without its number."""
    for unit in (ONE, *(Size(1, size.factors) for size in sizes)):
        times, rest = divmod(values[0], unit.value)
        if not rest and times and _column(unit * times, len(values)) == values:
            return unit * times
    return None


def _is_between(graph: Graph, cat: Node) -> bool:
    """Whether a concatenation is only joined again, and read where one of its pieces stands."""
    return cat.output not in graph.results and all(
        _is_joined_again(graph, reader, int(cat["dim"])) or piece_shown(graph, cat, reader) is not None
        for reader in graph.consumers[cat.output]
    )


def _is_joined_again(graph: Graph, reader: Node, dim: int) -> bool:
    """Whether a reader of a concatenation is a slice along ``dim`` that only concatenations read."""
    if reader.op != "view" or reader["how"] != "slice" or reader.output in graph.results:
        return False
    whole = all(
        as_size(start) == Size(0) and size == kept
        for at, (start, size, kept) in enumerate(
            zip(
                reader["starts"],
                graph.value(str(reader.inputs[0])).shape,
                graph.result(reader).shape,
                strict=True,
            )
        )
        if at != dim
    )
    steady = all(as_size(step) == ONE for step in reader["steps"])
    joined = all(n.op == "cat" and n["dim"] == dim for n in graph.consumers[reader.output])
    return whole and steady and joined


RULES: tuple[Rule, ...] = (filled_by_places, untouched)
