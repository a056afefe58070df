"""Softmax with a further logit in its denominator that has no value: a sink takes weight from all keys.

Programs spell it in several ways. A column is joined to the scores and dropped behind the softmax (also by
padding with a number), an exponential is added to the sum of exponentials, or the result of an ordinary
softmax is multiplied with ``sigmoid(logsumexp - sink)``. For a kernel with an online softmax it is one more
score, with the weight that it takes and without a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from egg.expert.algebra.rewrite import is_number, made_by, only_reader
from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE, Size, aligned


@dataclass(frozen=True)
class Weighed:
    """Scores that become weights, and the logit beside them: a value, or a number."""

    scores: str
    sink: str | float | None = None
    empty: str = "sink"
    """What a row has without keys: ``sink``, all its weight there; or ``nan``."""


def joined_sink(graph: Graph, name: str) -> Weighed | None:
    """A softmax over the scores and one more column, of which that column is dropped."""
    name = _behind_casts(graph, name)
    cut = made_by(graph, name, "view")
    if cut is None or cut["how"] != "slice" or not only_reader(graph, name):
        return None
    whole, kept = graph.value(str(cut.inputs[0])).shape, graph.result(cut).shape
    last = [_number(start) for start in cut["starts"]]
    first_dropped = last[-1] == 1
    even = whole[:-1] == kept[:-1] and all(start == 0 for start in last[:-1])
    if not even or last[-1] not in (0, 1) or not _one_more(whole[-1], kept[-1]):
        return None
    source = _behind_casts(graph, str(cut.inputs[0]))
    soft = made_by(graph, source, "softmax")
    if soft is None or soft["log"] or soft["dim"] != len(whole) - 1 or not only_reader(graph, source):
        return None
    joined = _behind_casts(graph, unshifted(graph, str(soft.inputs[0])) or "")
    return _pieces(graph, joined, first_dropped) if joined else None


def _pieces(graph: Graph, name: str, first: bool) -> Weighed | None:
    """The scores and the column beside them; ``first``: it stands before them."""
    node = graph.producer(name)
    if node is None:
        return None
    dim = graph.result(node).rank - 1
    if node.op == "pad" and only_reader(graph, str(node.inputs[0])):
        before = tuple(_number(number) for number in node["before"])
        return Weighed(str(node.inputs[0]), float(node["value"])) if before == (0,) * dim + (first,) else None
    if node.op != "cat" or node["dim"] != dim or len(node.inputs) != 2:
        return None
    sink, scores = (str(one) for one in (node.inputs if first else node.inputs[::-1]))
    fits = graph.value(sink).shape[-1] == ONE and graph.value(sink).dtype in FLOATS
    return Weighed(scores, sink) if fits and only_reader(graph, scores) else None


def unshifted(graph: Graph, name: str) -> str | None:
    """What a softmax is taken of, without the row's maximum, which changes nothing if it is subtracted
    before; ``None`` where something else reads it."""
    if not only_reader(graph, name):
        return None
    shift = made_by(graph, name, "pointwise")
    if shift is None or shift["fn"] != "sub" or len(shift.inputs) != 2:
        return name
    scores, top = str(shift.inputs[0]), str(shift.inputs[1])
    largest = _row_reduction(graph, top, "max")
    if largest is None or largest.inputs[0] != scores or not only_reader(graph, top):
        return name
    return scores if _read_within(graph, scores, (shift, largest)) else None


def summed_sink(graph: Graph, name: str) -> Weighed | None:
    """``exp(s - m) / (sum(exp(s - m)) + exp(sink - m))`` for any number ``m`` of a row."""
    name = _behind_casts(graph, name)
    divide = made_by(graph, name, "pointwise")
    if divide is None or divide["fn"] != "div" or len(divide.inputs) != 2 or not only_reader(graph, name):
        return None
    weights, norm = (str(one) for one in divide.inputs)
    power, total = _function(graph, weights, "exp"), made_by(graph, norm, "pointwise")
    if power is None or total is None or total["fn"] != "add" or not only_reader(graph, norm):
        return None
    scores, shift = _difference(graph, str(power.inputs[0]))
    terms = [str(one) for one in total.inputs]
    sums = [one for one in terms if (r := _row_reduction(graph, one, "sum")) and r.inputs[0] == weights]
    if len(sums) != 1 or not only_reader(graph, sums[0]):
        return None
    summing = graph.producers[sums[0]]
    inner = [power, summing, divide, total, *_makers(graph, (str(power.inputs[0]), shift))]
    if shift is None:
        numbers = [n for n in total.get("scalars") or () if is_number(n)]
        found = Weighed(scores, 0.0) if numbers == [1] else None
    else:
        further = next((one for one in terms if one != sums[0]), "")
        found = _added(graph, scores, shift, further, inner)
    return found if found is not None and _read_within(graph, weights, (summing, divide)) else None


def _added(graph: Graph, scores: str, shift: str, further: str, inner: list[Node]) -> Weighed | None:
    """``exp(-m)`` or ``exp(sink - m)`` beside the sum."""
    power = _function(graph, further, "exp")
    if power is None or graph.value(shift).shape[-1:] != (ONE,):
        return None
    inner += [power, *_makers(graph, (str(power.inputs[0]),))]
    if not all(_read_within(graph, name, inner) for name in (scores, shift, further)):
        return None
    # Minus infinity everywhere, less its maximum, is no number.
    empty = "nan" if _row_reduction(graph, shift, "max") is not None else "sink"
    if (negative := _function(graph, str(power.inputs[0]), "neg")) is not None:
        return Weighed(scores, 0.0, empty) if negative.inputs[0] == shift else None
    sink, other = _difference(graph, str(power.inputs[0]))
    return Weighed(scores, sink, empty) if other == shift else None


@dataclass(frozen=True)
class Rescaled:
    """A product of weights that is multiplied with the share that a sink leaves to the keys."""

    product: Node
    scores: str
    sink: str
    total: Node
    """The ``logsumexp`` of the scores."""


def rescaled_sink(graph: Graph, node: Node) -> Rescaled | None:
    """``(softmax(s) @ v) * sigmoid(logsumexp(s) - sink)``."""
    if node.op != "pointwise" or node["fn"] != "mul" or len(node.inputs) != 2:
        return None
    for result, share in (node.inputs, node.inputs[::-1]):
        name = _behind_casts(graph, str(result))
        product = made_by(graph, name, "matmul")
        if product is None or len(product.inputs) != 2 or not only_reader(graph, name):
            continue
        weights = _behind_casts(graph, str(product.inputs[0]))
        soft, share = made_by(graph, weights, "softmax"), _share(graph, str(share))
        if soft is None or share is None or soft["log"] or soft["dim"] != graph.result(soft).rank - 1:
            continue
        total, sink = share
        scores = str(soft.inputs[0])
        own = total.inputs[0] == scores and only_reader(graph, weights)
        if own and _read_within(graph, scores, (soft, total)):
            return Rescaled(product, scores, sink, total)
    return None


def _share(graph: Graph, name: str) -> tuple[Node, str] | None:
    """``sigmoid(total - sink)``, or ``exp(total - logaddexp(total, sink))``: the node of the total, and the
    sink."""
    name = _behind_casts(graph, name)
    if (curve := _function(graph, name, "sigmoid")) is not None:
        total, sink = _difference(graph, str(curve.inputs[0]))
    elif (curve := _function(graph, name, "exp")) is not None:
        total, both = _difference(graph, str(curve.inputs[0]))
        joint = made_by(graph, both, "pointwise")
        if joint is None or joint["fn"] != "logaddexp" or total not in joint.inputs:
            return None
        sink = next((str(one) for one in joint.inputs if one != total), None)
    else:
        return None
    reduction = _row_reduction(graph, total, "logsumexp")
    if reduction is None or sink is None or not only_reader(graph, name):
        return None
    fits = graph.value(total).shape[-1] == ONE and graph.value(sink).shape[-1:] in ((), (ONE,))
    return (reduction, sink) if fits else None


def _behind_casts(graph: Graph, name: str) -> str:
    """What a value was before it changed its dtype, where only that reads it."""
    while (node := made_by(graph, name, "pointwise")) is not None and node["fn"] == "cast":
        source = str(node.inputs[0])
        if graph.value(source).dtype not in FLOATS or not only_reader(graph, name):
            break
        name = source
    return name


def _row_reduction(graph: Graph, name: str, fn: str) -> Node | None:
    """A reduction over the last dimension, which stays as one element."""
    node = made_by(graph, name, "reduce")
    if node is None or node["fn"] != fn or not node["keepdim"]:
        return None
    return node if tuple(node["dims"]) == (graph.result(node).rank - 1,) else None


def _function(graph: Graph, name: str, fn: str) -> Node | None:
    node = made_by(graph, name, "pointwise")
    return node if node is not None and node["fn"] == fn and len(node.inputs) == 1 else None


def _difference(graph: Graph, name: str) -> tuple[str, str | None]:
    """Both sides of ``a - b``; the value itself where it is no difference of two values."""
    node = made_by(graph, name, "pointwise")
    if node is None or node["fn"] != "sub" or len(node.inputs) != 2:
        return name, None
    return str(node.inputs[0]), str(node.inputs[1])


def _makers(graph: Graph, names: Iterable[str | None]) -> list[Node]:
    """What makes values, and what makes the row's number among them from the scores."""
    found: list[Node] = []
    for name in names:
        while name is not None and (node := graph.producer(name)) is not None:
            found.append(node)
            row = node.op == "pointwise" and len(node.inputs) == 1 and graph.result(node).shape[-1:] == (ONE,)
            name = str(node.inputs[0]) if row else None
    return found


def _read_within(graph: Graph, name: str, nodes: Iterable[Node]) -> bool:
    """Whether only these nodes read a value."""
    own = {id(node) for node in nodes}
    return name not in graph.results and all(id(reader) in own for reader in graph.consumers[name])


def _one_more(larger: Size, size: Size) -> bool:
    return all(a == b + 1 for a, b in aligned(larger.values, size.values))


def _number(value: object) -> int | None:
    if isinstance(value, Size):
        return None if value.factors else value.number
    return value if isinstance(value, int) else None
