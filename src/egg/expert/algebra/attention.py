"""Attention written out as products and a softmax, recognised and put together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from egg.expert.algebra.masks import LOWEST, Mask, joined_masks, joins
from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, is_number, made_by, only_reader
from egg.expert.algebra.score_functions import Step, leads_to_product, multiplied, step_of
from egg.expert.algebra.sinks import Weighed, joined_sink, rescaled_sink, summed_sink, unshifted
from egg.expert.algebra.triangles import is_causal
from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE, Size, product

LARGEST_FILL = -1e3
"""Scores from here down are put in the place of others to hide them."""


@dataclass(frozen=True)
class Scores:
    """What stands between the products, from the softmax backwards: masked or not, scaled or not."""

    name: str
    shape: tuple[Size, ...]
    """As the softmax and the mask see it."""
    scale: float | Size = 1.0
    mask: Mask | None = None
    """The last one."""
    earlier: tuple[Mask, ...] = ()
    """Those before it, the latest first. They broadcast to ``shape`` as well."""
    steps: tuple[Step, ...] = ()
    """Functions of the scaled score before all masks, in their order."""
    sink: str | float | None = None
    """A logit of each row that has no key."""
    empty: str = "nan"


def attention(graph: Graph, node: Node) -> Rewrite | None:
    """``softmax(q @ k^T * scale + mask) @ v`` as one node.

    Nothing else may read what is in between, or it would be computed twice. A mask that is the
    causal triangle for certain becomes the flag; any other stays an operand. ``empty`` tells what a row has
    that sees nothing: ``nan`` as here, where PyTorch's own attention gives zeros, and so does a sink.
    ``fill`` is the score of what is masked where that is not minus infinity; every row of the causal triangle
    sees a key, so there the lowest number of a dtype is as good as minus infinity. Of 16-bit operands the
    softmax may be taken in fp32, as it is in one kernel anyway. Functions of the score before the mask
    (:mod:`.score_functions`) and a logit without a key (:mod:`.sinks`) are parts of the node as well.
    """
    if node.op != "matmul" or len(node.inputs) != 2:
        return None
    name = str(node.inputs[0])
    soft = _softmax(graph, name)
    if soft is not None:
        scores = unshifted(graph, str(soft.inputs[0]))
        weighed = Weighed(scores, empty="nan") if scores is not None else None
    else:
        weighed = joined_sink(graph, name) or summed_sink(graph, name)
    found = _scores(graph, weighed) if weighed is not None else None
    return None if found is None else _attended(graph, node, node, found)


def rescaled(graph: Graph, node: Node) -> Rewrite | None:
    """``(softmax(s) @ v) * sigmoid(logsumexp(s) - sink)`` as attention with a sink."""
    share = rescaled_sink(graph, node)
    if share is None or graph.result(share.product).shape != graph.result(node).shape:
        return None
    found = _scores(graph, Weighed(share.scores, share.sink, "nan"))
    return None if found is None else _attended(graph, node, share.product, found)


def _attended(graph: Graph, node: Node, last: Node, found: Scores) -> Rewrite | None:
    """Attention in the place of ``node``, where ``last`` multiplies weights with values."""
    factor = graph.producers[found.name]
    if len(factor.inputs) == 3:
        plain = found.mask is None and found.scale == 1.0 and not found.steps
        if not plain or found.shape != graph.result(factor).shape:
            return None
        found = replace(found, mask=Mask(str(factor.inputs[2])))
    q, turned, v = str(factor.inputs[0]), str(factor.inputs[1]), str(last.inputs[1])
    if len({graph.value(name).dtype for name in (q, turned, v)}) != 1:
        return None
    query_lead, key_lead, value_lead = (graph.value(name).shape[:-2] for name in (q, turned, v))
    alike = query_lead == key_lead and product(key_lead) == product(value_lead)
    if not alike and not (found.shape[:-2] == query_lead and _spread(key_lead, value_lead, query_lead)):
        return None
    q, scale = _scaled(graph, q, found.scale)
    return None if scale is None else _together(graph, node, replace(found, scale=scale), (q, turned, v))


def _together(graph: Graph, node: Node, found: Scores, operands: tuple[str, str, str]) -> Rewrite | None:
    """The operands in the shape in which the mask is applied, the node, and its result as it was."""
    draft, lead = Draft(graph, node), found.shape[:-2]
    q, turned, v = operands

    def shaped(name: str) -> str:
        own, shape = draft.value(name).shape, (*lead, *draft.value(name).shape[-2:])
        how = "reshape" if product(own[:-2]) == product(lead) else "expand"
        return name if own == shape else draft.add("view", [name], shape, "heads", dtype, how=how)

    dtype = graph.value(v).dtype
    view = made_by(graph, turned, "view")
    if view is not None and _swaps_last(view):
        k = str(view.inputs[0])
    else:
        *outer, depth, keys = graph.value(turned).shape
        dims = (*range(len(outer)), len(outer) + 1, len(outer))
        k = draft.add("view", [turned], (*outer, keys, depth), "keys", how="permute", dims=dims)
    mask, causal = _mask(graph, draft, found)
    result = graph.result(node).shape
    shape = (*lead, *result[-2:])
    inputs = [shaped(q), shaped(k), shaped(v), mask]
    attributes = {"causal": causal, "scale": found.scale, "empty": found.empty}
    if found.steps or found.sink is not None:
        inputs += [_sink(draft, found.sink), *(step.other for step in found.steps if step.other is not None)]
    if found.steps:
        attributes["steps"] = tuple((step.fn, step.scalars, step.place) for step in found.steps)
    fill = found.mask.fill if found.mask is not None and not found.earlier else -math.inf
    if fill > (LOWEST[graph.value(found.name).dtype] if causal else -math.inf):
        attributes["fill"] = fill
    whole = draft.add("attention", inputs, shape, "attention", dtype, **attributes)
    if dtype != graph.result(node).dtype:
        whole = draft.add("pointwise", [whole], shape, "wider", fn="cast", scalars=())
    if shape != result:
        draft.add("view", [whole], result, "result", how="reshape")
    return draft.done()


def _spread(keys: tuple[Size, ...], values: tuple[Size, ...], queries: tuple[Size, ...]) -> bool:
    """Whether several heads of queries read the same keys and values, along dimensions of one element."""
    return len(keys) == len(values) == len(queries) and all(
        key == value and key in (ONE, query) for key, value, query in zip(keys, values, queries, strict=True)
    )


def _sink(draft: Draft, sink: str | float | None) -> str | None:
    """A number is a value that is the same everywhere."""
    if sink is None or isinstance(sink, str):
        return sink
    return draft.add("constant", [], (ONE, ONE), "sink", "float32", fill=sink)


def _mask(graph: Graph, draft: Draft, found: Scores) -> tuple[str | None, bool]:
    if found.mask is None:
        return None, False
    if found.earlier:
        return joined_masks(draft, found.mask, *found.earlier), False
    name = found.mask.value
    rows, columns = found.shape[-2:]
    if found.mask.scale != 1.0:
        attributes = {"fn": "mul", "scalars": (None, found.mask.scale)}
        mask = graph.value(name)
        return draft.add("pointwise", [name], mask.shape, "scaled", mask.dtype, **attributes), False
    if not found.mask.hidden and is_causal(graph, name, rows, columns):
        return None, True
    if not found.mask.hidden:
        return name, False
    # Seen is what is not hidden; the triangle is looked for in the graph with that node in it.
    seen = draft.add(
        "pointwise", [name], graph.value(name).shape, "seen", "bool", fn="logical_not", scalars=()
    )
    wider = replace(
        graph, nodes=(*graph.nodes, draft.nodes[-1]), values={**graph.values, seen: draft.values[-1]}
    )
    if not is_causal(wider, seen, rows, columns):
        return seen, False
    draft.nodes.pop()
    draft.values.pop()
    return None, True


def _softmax(graph: Graph, name: str) -> Node | None:
    """Over the last dimension, with at most a change of the leading dimensions and of the dtype behind it."""
    while (step := _outer_reshape(graph, name) or _cast(graph, name, "float32")) and only_reader(graph, name):
        name = str(step.inputs[0])
    soft = made_by(graph, name, "softmax")
    if soft is None or soft["log"] or soft["dim"] != graph.result(soft).rank - 1:
        return None
    return soft if only_reader(graph, name) and only_reader(graph, str(soft.inputs[0])) else None


def _scores(graph: Graph, weighed: Weighed) -> Scores | None:
    """Back to the product through a mask, functions of the score, a number that is multiplied, changes of the
    leading dimensions, and a cast from 16 bits.

    A sink, a mask and an operand of a function hold for the shape in which they meet the scores.
    """
    name, scale, mask, earlier, steps = weighed.scores, 1.0, None, list[Mask](), list[Step]()
    shape, fixed = graph.value(name).shape, weighed.sink is not None
    if len(shape) < 2:
        return None
    while (node := graph.producer(name)) is not None and _own(graph, name, weighed):
        masked = _masked(graph, node) if not steps else None
        apart = fixed and graph.value(name).shape != shape
        number, step = _multiplier(node), step_of(graph, node)
        if (view := _outer_reshape(graph, name)) is not None:
            shape = shape if fixed else graph.value(str(view.inputs[0])).shape
            name = str(view.inputs[0])
        elif masked is not None and mask is None and _scalable(node, scale) and not apart:
            (name, mask), shape, fixed = masked, graph.value(name).shape, True
            mask = replace(mask, scale=scale)
        elif masked is not None and mask is not None and _scalable(node, scale):
            another = replace(masked[1], scale=scale)
            if not all(joins(graph, one, shape) for one in (mask, another)):
                break
            name, earlier = masked[0], [*earlier, another]
        elif number is not None and (scale == 1.0 or steps):
            steps = steps if scale == 1.0 else [multiplied(scale), *steps]
            name, scale = str(node.inputs[0]), number
        elif (wider := _cast(graph, name, "float16", "bfloat16")) is not None:
            name = str(wider.inputs[0])
        elif step is not None and not (step[1].other and apart):
            steps = [step[1], *(() if scale == 1.0 else (multiplied(scale),)), *steps]
            name, scale, fixed = step[0], 1.0, fixed or step[1].other is not None
        else:
            break
    if made_by(graph, name, "matmul") is None or not _own(graph, name, weighed):
        return None
    return Scores(name, shape, scale, mask, tuple(earlier), tuple(steps), weighed.sink, weighed.empty)


def _own(graph: Graph, name: str, weighed: Weighed) -> bool:
    """Whether only this attention reads a value; of the scores that become weights, that was found before."""
    return name == weighed.scores or only_reader(graph, name)


def _scalable(masking: Node, scale: float | Size) -> bool:
    """Numbers that are added can be scaled by themselves; minus infinity might change its sign."""
    return scale == 1.0 or masking.op == "pointwise"


def _masked(graph: Graph, node: Node) -> tuple[str, Mask] | None:
    """The scores and the mask, where numbers are added or a very low one is put in the place of some."""
    shape = graph.result(node).shape
    names = [str(name) for name in node.inputs]
    match node.op:
        case "pointwise" if node["fn"] == "add" and len(names) == 2:
            for scores, mask, functions in (
                (*names, False),
                (*names[::-1], False),
                (*names, True),
                (*names[::-1], True),
            ):
                whole = graph.value(scores).shape == shape and only_reader(graph, scores)
                alike = graph.value(mask).dtype == graph.value(scores).dtype
                if whole and alike and _leads_to_product(graph, scores, functions):
                    return scores, Mask(mask)
        case "where":
            condition, yes, no = names
            for scores, other, hidden in ((no, yes, True), (yes, no, False)):
                whole = graph.value(scores).shape == shape and only_reader(graph, scores)
                fill = _fill(graph, other)
                if whole and graph.value(condition).dtype == "bool" and fill <= LARGEST_FILL:
                    return scores, Mask(condition, hidden, fill=fill)
    return None


def _leads_to_product(graph: Graph, name: str, functions: bool) -> bool:
    """Whether scores lie behind numbers, other masks, views and a cast from 16 bits, and before those
    perhaps behind ``functions``."""
    while (node := graph.producer(name)) is not None and node.op != "matmul":
        if (masked := _masked(graph, node)) is not None:
            name = masked[0]
            continue
        passed = _outer_reshape(graph, name) or _cast(graph, name, "float16", "bfloat16")
        if _multiplier(node) is None and passed is None:
            return functions and leads_to_product(graph, name)
        name = str(node.inputs[0])
    return node is not None


def _fill(graph: Graph, name: str) -> float:
    """The number that a value is everywhere; infinity where it is not one that is known."""
    node = graph.producer(name)
    while node is not None and _carries(node):
        node = graph.producer(str(node.inputs[0]))
    fill = node.get("fill") if node is not None and node.op == "constant" else None
    return float(fill) if fill is not None and is_number(fill) else math.inf


def _carries(node: Node) -> bool:
    """Whether a node leaves a number as it is."""
    return node.op == "view" and node["how"] in ("reshape", "expand")


def _outer_reshape(graph: Graph, name: str) -> Node | None:
    """A reshape that leaves the last two dimensions as they are."""
    view = made_by(graph, name, "view")
    if view is None or view["how"] != "reshape":
        return None
    before, after = graph.value(str(view.inputs[0])).shape, graph.result(view).shape
    return view if len(before) > 1 and before[-2:] == after[-2:] else None


def _cast(graph: Graph, name: str, *sources: str) -> Node | None:
    """What makes a value from the same in another of the dtypes of an attention."""
    node = made_by(graph, name, "pointwise")
    if node is None or node["fn"] != "cast" or graph.value(name).dtype not in FLOATS:
        return None
    return node if graph.value(str(node.inputs[0])).dtype in sources else None


def _scaled(graph: Graph, q: str, scale: float | Size) -> tuple[str, float | Size | None]:
    """A number that was multiplied into q beforehand."""
    node = graph.producer(q)
    number = _multiplier(node)
    if node is None or number is None:
        return q, scale
    if isinstance(number, Size) or isinstance(scale, Size):
        plain = scale if isinstance(number, Size) else number
        if plain != 1.0:
            return q, scale
        return str(node.inputs[0]), number if isinstance(number, Size) else scale
    return str(node.inputs[0]), number * scale


def _multiplier(node: Node | None) -> float | Size | None:
    if node is None or node.op != "pointwise" or len(node.inputs) != 1:
        return None
    match node["fn"], tuple(node.get("scalars") or ()):
        case "mul", (None, number) | (number, None) if is_number(number) or isinstance(number, Size):
            return number if isinstance(number, Size) else float(number)
        case "div", (None, number) if is_number(number) and number:
            return 1.0 / number
    return None


def _swaps_last(view: Node) -> bool:
    if view["how"] != "permute":
        return False
    rank = len(view["dims"])
    return tuple(view["dims"]) == (*range(rank - 2), rank - 1, rank - 2)


RULES: tuple[Rule, ...] = (attention, rescaled)
