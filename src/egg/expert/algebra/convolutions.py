"""Convolutions whose results are only ever summed."""

from __future__ import annotations

from typing import Any

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by, only_reader
from egg.expert.graph import Graph, Node
from egg.expert.sizes import as_size, product


def summed(graph: Graph, node: Node) -> Rewrite | None:
    """The sum of a transposed convolution over space is the sum of its inputs times the sum of its weights.

    Every input meets every tap exactly once, as long as nothing of the result is cut off at its borders
    (``padding`` does that): so ``conv(x).mean((2, 3))`` is ``x.sum((2, 3)) @ weight.sum((2, 3))`` over the
    number of outputs, plus the bias. One pass over the input is left.
    """
    if node.op != "reduce" or node["fn"] not in ("sum", "mean"):
        return None
    conv = made_by(graph, node.inputs[0], "conv")
    if conv is None or not only_reader(graph, conv.output) or not _whole(conv):
        return None
    x, weight = (graph.value(str(name)) for name in conv.inputs[:2])
    made, result = graph.result(conv), graph.result(node)
    space = tuple(range(2, made.rank))
    if tuple(sorted(node["dims"])) != space or x.rank != made.rank or result.dtype != "float32":
        return None
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if {value.dtype for value in (x, weight, made)} != {"float32"} or (bias and node["fn"] == "sum"):
        return None
    draft, shape = Draft(graph, node), made.shape[:2]
    attributes: dict[str, Any] = {"fn": "sum", "dims": space, "keepdim": False}
    inputs = draft.add("reduce", [x.name], x.shape[:2], "inputs", **attributes)
    taps = draft.add("reduce", [weight.name], weight.shape[:2], "taps", **attributes)
    last = draft.add("matmul", [inputs, taps], shape, "product")
    if node["fn"] == "mean":
        count = product(made.shape[2:])
        last = draft.add("pointwise", [last], shape, "div", fn="div", scalars=(None, count))
    if bias is not None:
        last = draft.add("pointwise", [last, bias], shape, "add", fn="add", scalars=())
    if result.shape != shape:
        draft.add("view", [last], result.shape, "reshape", how="reshape")
    return draft.done()


def _whole(conv: Node) -> bool:
    """Transposed, of one group, with nothing cut off."""
    padding = conv["padding"] if isinstance(conv["padding"], tuple | list) else (conv["padding"],)
    return (
        bool(conv.get("transposed", False))
        and as_size(conv.get("groups", 1)) == as_size(1)
        and all(as_size(size) == as_size(0) for size in padding)
    )


RULES: tuple[Rule, ...] = (summed,)
