"""Views of views, and views that show everything as it is."""

from __future__ import annotations

from dataclasses import replace

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, instead, made_by, only_reader, same
from egg.expert.graph import Graph, Node
from egg.expert.sizes import ONE, Size, aligned, as_size


def whole(graph: Graph, node: Node) -> Rewrite | None:
    """A view that moves nothing, a concatenation of one, a padding by nothing."""
    if node.op == "cat" and len(node.inputs) == 1:
        return same(str(node.inputs[0]))
    if node.op == "pad":
        source = graph.value(str(node.inputs[0]))
        nothing = all(as_size(b) == Size(0) for b in node["before"])
        return same(source.name) if nothing and source.shape == graph.result(node).shape else None
    if node.op != "view":
        return None
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    match node["how"]:
        case "permute":
            still = node["dims"] == tuple(range(source.rank))
        case "slice":
            still = source.shape == result.shape and all(as_size(s) == ONE for s in node["steps"])
        case "flip":
            still = all(source.shape[d] == ONE for d in node["dims"])
        case _:
            still = source.shape == result.shape
    return same(source.name) if still else None


def trivial_permute(graph: Graph, node: Node) -> Rewrite | None:
    """A permutation that only moves dimensions of one element is a reshape."""
    if node.op != "view" or node["how"] != "permute":
        return None
    source = graph.value(str(node.inputs[0]))
    moved = [d for d in node["dims"] if source.shape[d] != ONE]
    if moved != sorted(moved):
        return None
    return instead(replace(node, attributes={"how": "reshape"}))


def merged(graph: Graph, node: Node) -> Rewrite | None:
    """Two views of one kind, one after the other."""
    if node.op != "view" or (inner := made_by(graph, node.inputs[0], "view")) is None:
        return None
    how, first = node["how"], inner["how"]
    if how == "reshape" and first == "reshape":
        return instead(node.with_inputs(*inner.inputs))
    if how == "expand" and first == "expand":
        return instead(node.with_inputs(*inner.inputs))
    if how == "permute" and first == "permute":
        dims = tuple(inner["dims"][d] for d in node["dims"])
        return instead(replace(node, inputs=inner.inputs, attributes={"how": "permute", "dims": dims}))
    if how == "flip" and first == "flip" and node["dims"] == inner["dims"]:
        return same(str(inner.inputs[0]))
    if how == "slice" and first == "slice":
        return _merged_slices(node, inner)
    return None


def _merged_slices(node: Node, inner: Node) -> Rewrite | None:
    """Starts add up; where one of the two is zero they do so even if they have names."""
    starts: list[Size | int] = []
    for outer, start, step in zip(node["starts"], inner["starts"], inner["steps"], strict=True):
        moved = as_size(outer) * as_size(step)
        if moved == Size(0):
            starts.append(start)
        elif as_size(start) == Size(0):
            starts.append(moved if moved.factors else moved.number)
        elif not moved.factors and not as_size(start).factors:
            starts.append(moved.number + as_size(start).number)
        else:
            return None
    steps = tuple(a * b for a, b in zip(node["steps"], inner["steps"], strict=True))
    attributes = {"how": "slice", "starts": tuple(starts), "steps": steps}
    return instead(replace(node, inputs=inner.inputs, attributes=attributes))


def reshape_of_expand(graph: Graph, node: Node) -> Rewrite | None:
    """An expansion that adds dimensions of one element only is a reshape."""
    if node.op != "view" or node["how"] != "expand":
        return None
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    if source.elements != result.elements or source.shape == result.shape:
        return None
    return instead(replace(node, attributes={"how": "reshape"}))


def reversed_scan(graph: Graph, node: Node) -> Rewrite | None:
    """A flip before a scan and the same flip behind it: a scan from the other end."""
    if node.op != "view" or node["how"] != "flip" or len(node["dims"]) != 1:
        return None
    scan = made_by(graph, node.inputs[0], "scan")
    flip = made_by(graph, scan.inputs[0], "view") if scan is not None else None
    if scan is None or flip is None or flip["how"] != "flip" or flip["dims"] != node["dims"]:
        return None
    if scan["dim"] != node["dims"][0]:
        return None
    draft = Draft(graph, node)
    attributes = {**scan.attributes, "reverse": not scan["reverse"]}
    draft.add("scan", flip.inputs, graph.result(node).shape, "scan", **attributes)
    return draft.done()


def exclusive_scan(graph: Graph, node: Node) -> Rewrite | None:
    """Nothing, then the running total of all elements but the last: what comes before each element."""
    if node.op != "cat" or len(node.inputs) != 2:
        return None
    start, scan = made_by(graph, node.inputs[0], "constant"), made_by(graph, node.inputs[1], "scan")
    cut = made_by(graph, scan.inputs[0], "view") if scan is not None else None
    if start is None or scan is None or cut is None or cut["how"] != "slice":
        return None
    dim, neutral = scan["dim"], {"sum": 0, "prod": 1}.get(scan["fn"])
    source, result = graph.value(str(cut.inputs[0])), graph.result(node)
    if dim != node["dim"] or scan["reverse"] or scan.get("exclusive") or neutral is None:
        return None
    if start.get("fill") != neutral or graph.result(start).shape[dim] != ONE:
        return None
    from_the_first = all(as_size(s) == Size(0) for s in cut["starts"])
    if not from_the_first or any(as_size(s) != ONE for s in cut["steps"]) or source.shape != result.shape:
        return None
    if graph.result(scan).dtype != result.dtype:
        return None
    draft = Draft(graph, node)
    draft.add("scan", cut.inputs, result.shape, "scan", **{**scan.attributes, "exclusive": True})
    return draft.done()


def reshape_there_and_back(graph: Graph, node: Node) -> Rewrite | None:
    """``reshape(pointwise(reshape(x)))`` with one operand: the function on ``x`` itself."""
    if node.op != "view" or node["how"] != "reshape":
        return None
    middle = made_by(graph, node.inputs[0], "pointwise")
    if middle is None or len(middle.inputs) != 1 or len(graph.consumers[middle.output]) != 1:
        return None
    before = made_by(graph, middle.inputs[0], "view")
    if before is None or before["how"] != "reshape" or middle.output in graph.results:
        return None
    if graph.value(str(before.inputs[0])).shape != graph.result(node).shape:
        return None
    return instead(replace(middle, inputs=before.inputs, outputs=node.outputs))


def piece_of_cat(graph: Graph, node: Node) -> Rewrite | None:
    """A slice that is an operand of a concatenation, where all that is read of it are such slices: channels
    that are packed for a function and taken apart in it."""
    cat = made_by(graph, node.inputs[0] if node.op == "view" else None, "cat")
    if cat is None or cat.output in graph.results:
        return None
    pieces = {id(reader): piece_shown(graph, cat, reader) for reader in graph.consumers[cat.output]}
    found = pieces.get(id(node))
    return same(found) if found is not None and None not in pieces.values() else None


def piece_shown(graph: Graph, cat: Node, reader: Node) -> str | None:
    """The operand of a concatenation that a slice is; sizes are compared at all captured ones."""
    if reader.op != "view" or reader["how"] != "slice" or any(as_size(s) != ONE for s in reader["steps"]):
        return None
    dim, made = cat["dim"], graph.result(reader)
    if any(as_size(s) != Size(0) for at, s in enumerate(reader["starts"]) if at != dim):
        return None
    before: tuple[int, ...] = (0,)
    for name in map(str, cat.inputs):
        piece = graph.value(name)
        begins = all(a == b for a, b in aligned(as_size(reader["starts"][dim]).values, before))
        if begins and piece.shape == made.shape and piece.dtype == made.dtype:
            return name
        before = tuple(a + b for a, b in aligned(before, piece.shape[dim].values))
    return None


def beginning_of_scatter(graph: Graph, node: Node) -> Rewrite | None:
    """The first places of a scatter: elements for the others need not be written.

    Programs that have room for some elements send the rest to a place behind, which is cut off again: only
    there do several elements have one place.
    """
    if node.op != "view" or node["how"] != "slice":
        return None
    scatter = made_by(graph, node.inputs[0], "scatter")
    if scatter is None or scatter["fn"] != "store" or not only_reader(graph, scatter.output):
        return None
    source, result, dim = graph.result(scatter), graph.result(node), scatter["dim"]
    if any(as_size(s) != Size(0) for s in node["starts"]) or any(as_size(s) != ONE for s in node["steps"]):
        return None
    if any(a != b for d, (a, b) in enumerate(zip(source.shape, result.shape, strict=True)) if d != dim):
        return None
    draft = Draft(graph, node)
    attributes = {"whole": source.shape[dim], **scatter.attributes}
    draft.add("scatter", scatter.inputs, result.shape, "scatter", result.dtype, **attributes)
    return draft.done()


RULES: tuple[Rule, ...] = (
    whole,
    trivial_permute,
    merged,
    reshape_of_expand,
    reversed_scan,
    exclusive_scan,
    reshape_there_and_back,
    piece_of_cat,
    beginning_of_scatter,
)
