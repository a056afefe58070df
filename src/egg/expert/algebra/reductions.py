"""Reductions: of one element, of reductions, of products, and numbers that can wait until after them."""

from __future__ import annotations

from dataclasses import replace

from egg.expert.algebra.pointwise import factor_of
from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, instead, made_by, only_reader
from egg.expert.graph import HALF, Graph, Node, Value
from egg.expert.sizes import ONE, Size

_MERGING = frozenset({"sum", "mean", "max", "min", "prod", "any", "all", "logsumexp"})
"""Done over some dimensions and then over others, they are done over all of them."""
_OF_ONE = frozenset({"sum", "mean", "max", "min", "prod", "logsumexp"})
"""Of one element they are that element."""
FEW_ROWS = 4
"""Gathered rows whose sum is written out."""
SHORT_ROWS = 128
"""Elements of so many rows together, up to which there is no program for each bag of them."""


def of_one(graph: Graph, node: Node) -> Rewrite | None:
    """A reduction over dimensions of one element reduces nothing."""
    if node.op != "reduce":
        return None
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    if any(source.shape[d] != ONE for d in node["dims"]) or source.dtype != result.dtype:
        return None
    if node["fn"] in _OF_ONE:
        return instead(Node("view", node.inputs, node.outputs, {"how": "reshape"}, node.label))
    if node["fn"] == "norm":
        draft = Draft(graph, node)
        size = draft.add("pointwise", node.inputs, source.shape, "abs", fn="abs", scalars=())
        draft.add("view", [size], result.shape, "reshape", how="reshape")
        return draft.done()
    return None


def outer_product(graph: Graph, node: Node) -> Rewrite | None:
    """A product that adds up one element is a multiplication; with a bias only where nothing is rounded in
    between."""
    if node.op != "matmul":
        return None
    left, right, bias = (*graph.operands(node), None)[:3]
    result = graph.result(node)
    assert left is not None
    assert right is not None
    if min(left.rank, right.rank) < 2 or left.shape[-1] != ONE or right.shape[-2] != ONE:
        return None
    if {left.dtype, right.dtype} != {result.dtype} or (bias is not None and result.dtype != "float32"):
        return None
    draft = Draft(graph, node)
    made = draft.add("pointwise", (left.name, right.name), result.shape, "mul", fn="mul", scalars=())
    if bias is not None:
        draft.add("pointwise", (made, bias.name), result.shape, "add", fn="add", scalars=())
    return draft.done()


def inner_products(graph: Graph, node: Node) -> Rewrite | None:
    """One row by one column, many times: a sum along rows, which shares a pass with what surrounds it."""
    if node.op != "matmul" or len(node.inputs) > 2:
        return None
    left, right = (graph.value(str(name)) for name in node.inputs)
    result = graph.result(node)
    if min(left.rank, right.rank) < 2 or result.shape[-2:] != (ONE, ONE) or result.elements == ONE:
        return None
    if {left.dtype, right.dtype} != {result.dtype} or left.shape[-1] == ONE:
        return None
    draft, length = Draft(graph, node), left.shape[-1]
    lying = draft.add("view", [right.name], (*right.shape[:-2], ONE, length), "reshape", how="reshape")
    shape = (*result.shape[:-1], length)
    both = draft.add("pointwise", (left.name, lying), shape, "mul", fn="mul", scalars=())
    dims = (result.rank - 1,)
    draft.add("reduce", [both], result.shape, "sum", fn="sum", dims=dims, keepdim=True)
    return draft.done()


def summed_scatter(graph: Graph, node: Node) -> Rewrite | None:
    """A sum or mean over other dimensions than the one that is scattered along (of a graph's heads) may be
    taken of the source: so many times fewer elements are added up in memory."""
    scatter = made_by(graph, node.inputs[0], "scatter") if node.op == "reduce" else None
    if scatter is None or node["fn"] not in ("sum", "mean") or not only_reader(graph, scatter.output):
        return None
    if scatter["fn"] != "sum" or scatter["fill"] != 0 or graph.result(scatter).dtype != "float32":
        return None
    source, index = (graph.value(str(name)) for name in scatter.inputs)
    result, along, dims = graph.result(node), scatter["dim"], {d % source.rank for d in node["dims"]}
    whole = all(index.shape[d] == ONE and source.shape[d] == graph.result(scatter).shape[d] for d in dims)
    if not whole or along in dims or result.dtype != "float32":
        return None
    left = [d for d in range(source.rank) if d not in dims]
    kept = range(source.rank) if node["keepdim"] else left
    draft = Draft(graph, node)
    shape = tuple(ONE if d in dims else source.shape[d] for d in kept)
    total = draft.add("reduce", [source.name], shape, str(node["fn"]), **node.attributes)
    places = draft.add(
        "view", [index.name], tuple(index.shape[d] for d in kept), "places", index.dtype, how="reshape"
    )
    attributes = {**scatter.attributes, "dim": list(kept).index(along)}
    draft.add("scatter", [total, places], result.shape, "scatter", **attributes)
    return draft.done()


def fewer_dims(graph: Graph, node: Node) -> Rewrite | None:
    """Dimensions of one element need not be reduced where they are kept anyway."""
    if node.op != "reduce" or not node["keepdim"] or node["fn"] not in _MERGING:
        return None
    source = graph.value(str(node.inputs[0]))
    dims = tuple(d for d in node["dims"] if source.shape[d] != ONE)
    if not dims or dims == node["dims"]:
        return None
    return instead(replace(node, attributes={**node.attributes, "dims": dims}))


def merged(graph: Graph, node: Node) -> Rewrite | None:
    """``x.sum(2).sum(1)`` is ``x.sum((1, 2))``; means, too, because the parts are of one size."""
    inner = made_by(graph, node.inputs[0], "reduce") if node.op == "reduce" else None
    if inner is None or inner["fn"] != node["fn"] or node["fn"] not in _MERGING:
        return None
    source = graph.value(str(inner.inputs[0]))
    if not only_reader(graph, inner.output) or source.dtype != graph.result(node).dtype:
        return None
    left = [d for d in range(source.rank) if inner["keepdim"] or d not in inner["dims"]]
    dims = tuple(sorted({*inner["dims"], *(left[d] for d in node["dims"])}))
    if inner["keepdim"] == node["keepdim"]:
        return instead(replace(node, inputs=inner.inputs, attributes={**node.attributes, "dims": dims}))
    draft = Draft(graph, node)
    kept = tuple(size for d, size in enumerate(source.shape) if d not in dims)
    total = draft.add("reduce", inner.inputs, kept, str(node["fn"]), fn=node["fn"], dims=dims, keepdim=False)
    draft.add("view", [total], graph.result(node).shape, "reshape", how="reshape")
    return draft.done()


def _summed(graph: Graph, node: Node, op: str) -> Node | None:
    """What ``node`` takes the sum or the mean of, where an ``op`` made it."""
    sums = node.op == "reduce" and node["fn"] in ("sum", "mean")
    return made_by(graph, node.inputs[0], op) if sums else None


def number_after(graph: Graph, node: Node) -> Rewrite | None:
    """``(x * c).sum()`` is ``x.sum() * c``: the number meets few elements instead of many."""
    scaled = _summed(graph, node, "pointwise")
    factor = factor_of(scaled) if scaled is not None and len(scaled.inputs) == 1 else None
    if scaled is None or factor is None or not only_reader(graph, scaled.output):
        return None
    source, result = graph.value(str(scaled.inputs[0])), graph.result(node)
    if source.dtype != result.dtype or not result.floating:
        return None
    draft = Draft(graph, node)
    total = draft.add("reduce", scaled.inputs, result.shape, str(node["fn"]), **node.attributes)
    draft.add("pointwise", [total], result.shape, "mul", fn="mul", scalars=(None, factor[1]))
    return draft.done()


def summed_product(graph: Graph, node: Node) -> Rewrite | None:
    """``(a @ b + c).sum(-1)`` is ``a @ b.sum(-1) + c.sum(-1)``: a product with a vector instead of a matrix.

    The same for means. Only where ``b`` is one matrix for all of the batch.
    """
    product = _summed(graph, node, "matmul")
    if product is None or not only_reader(graph, product.output):
        return None
    made = graph.result(product)
    if node["dims"] != (made.rank - 1,) or made.dtype != graph.result(node).dtype:
        return None
    a, b = (graph.value(str(n)) for n in product.inputs[:2])
    bias = graph.value(str(product.inputs[2])) if len(product.inputs) > 2 and product.inputs[2] else None
    columns = made.shape[-1]
    if b.rank != 2 or columns == ONE or (bias is not None and not _row_like(bias, columns)):
        return None
    fn, draft = node["fn"], Draft(graph, node)
    attributes = {"fn": fn, "dims": (1,), "keepdim": True}
    vector = draft.add("reduce", [b.name], (b.shape[0], ONE), f"weight_{fn}", **attributes)
    inputs = [a.name, vector]
    if bias is not None:
        attributes = {"fn": fn, "dims": (bias.rank - 1,), "keepdim": True}
        inputs.append(draft.add("reduce", [bias.name], (*bias.shape[:-1], ONE), f"bias_{fn}", **attributes))
    shape = (*made.shape[:-1], ONE)
    total = draft.add("matmul", inputs, shape, "product")
    if node["keepdim"]:
        return draft.done()
    draft.add("view", [total], graph.result(node).shape, "reshape", how="reshape")
    return draft.done()


def row_after(graph: Graph, node: Node) -> Rewrite | None:
    """``(a @ b - c).mean(-1)`` is ``(a @ b).mean(-1) - c.mean(-1)``, where ``c`` is one row for all of them.

    So that what is summed is the product itself.
    """
    added = _summed(graph, node, "pointwise")
    if added is None or added["fn"] not in ("add", "sub") or len(added.inputs) != 2:
        return None
    plain = all(number in (None, 1) for number in added.get("scalars") or ())
    if not plain or not only_reader(graph, added.output):
        return None
    made, result = graph.result(added), graph.result(node)
    if node["dims"] != (made.rank - 1,) or not made.dtype == result.dtype == "float32":
        return None
    for place, name in enumerate(added.inputs):
        row = graph.value(str(added.inputs[1 - place]))
        product = graph.value(str(name))
        alike = product.shape == made.shape and product.dtype == row.dtype == made.dtype
        one = _row_like(row, made.shape[-1]) and all(size == ONE for size in row.shape[:-1])
        if not (alike and one and row.rank <= made.rank and made_by(graph, product.name, "matmul")):
            continue
        fn, draft = node["fn"], Draft(graph, node)
        attributes = {"fn": fn, "keepdim": True}
        total = draft.add(
            "reduce", [product.name], (*made.shape[:-1], ONE), str(fn), dims=(made.rank - 1,), **attributes
        )
        shape = (*row.shape[:-1], ONE)
        part = draft.add("reduce", [row.name], shape, f"row_{fn}", dims=(row.rank - 1,), **attributes)
        inputs = [total, part] if place == 0 else [part, total]
        both = draft.add("pointwise", inputs, (*made.shape[:-1], ONE), str(added["fn"]), **added.attributes)
        if result.shape != (*made.shape[:-1], ONE):
            draft.add("view", [both], result.shape, "reshape", how="reshape")
        return draft.done()
    return None


def few_gathered(graph: Graph, node: Node) -> Rewrite | None:
    """A sum or mean over so few gathered rows is written out, a term for each, where the rows are short.

    Threads of a reduction would share what one index leads to, and load single elements at an index each; as
    a pass over the results, columns lie along the lanes, and a row's index is loaded once for 16 bytes.
    """
    gather = _summed(graph, node, "gather")
    if gather is None or gather["how"] != "embedding" or not only_reader(graph, gather.output):
        return None
    made, result, index = graph.result(gather), graph.result(node), graph.value(str(gather.inputs[1]))
    table = graph.value(str(gather.inputs[0]))
    dims = [d % made.rank for d in node["dims"]]
    if len(dims) != 1 or dims[0] >= index.rank or made.dtype != result.dtype or not made.floating:
        return None
    count, (dim,) = made.shape[dims[0]], dims
    if count.factors or not 1 < count.number <= FEW_ROWS or count.number * table.shape[-1].value > SHORT_ROWS:
        return None
    draft, total, wide = Draft(graph, node), "", "float32" if made.dtype in HALF else made.dtype
    one = tuple(ONE if d == dim else size for d, size in enumerate(index.shape))
    kept = tuple(size for d, size in enumerate(index.shape) if d != dim)
    for at in range(count.number):
        starts = tuple(at if d == dim else 0 for d in range(index.rank))
        cut = {"how": "slice", "starts": starts, "steps": (1,) * index.rank}
        place = draft.add("view", [index.name], one, "place", index.dtype, **cut)
        place = draft.add("view", [place], kept, "place", index.dtype, how="reshape")
        shape = (*kept, table.shape[-1])
        row = draft.add("gather", [table.name, place], shape, "row", table.dtype, **gather.attributes)
        if wide != made.dtype:
            row = draft.add("pointwise", [row], shape, "wide", wide, fn="cast", scalars=())
        total = (
            draft.add("pointwise", [total, row], shape, "sum", wide, fn="add", scalars=()) if total else row
        )
    shape = draft.value(total).shape
    if node["fn"] == "mean":
        total = draft.add(
            "pointwise", [total], shape, "mean", wide, fn="div", scalars=(None, float(count.number))
        )
    if wide != made.dtype:
        total = draft.add("pointwise", [total], shape, "narrow", fn="cast", scalars=())
    draft.add("view", [total], result.shape, "reshape", how="reshape")
    return draft.done()


def _row_like(bias: Value, columns: Size) -> bool:
    return bias.rank >= 1 and bias.shape[-1] == columns


RULES: tuple[Rule, ...] = (
    of_one,
    few_gathered,
    outer_product,
    inner_products,
    summed_scatter,
    fewer_dims,
    merged,
    number_after,
    row_after,
    summed_product,
)
