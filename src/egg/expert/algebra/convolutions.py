"""Convolutions that are sums: of what is only ever summed, and of channels into one."""

from __future__ import annotations

from typing import Any

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, made_by, only_reader
from egg.expert.graph import FLOATS, Graph, Node
from egg.expert.sizes import ONE, as_size, product

MOST_CHANNELS = 64
"""Summed into one by a pass over memory, at most: they stay in registers between what is around them."""


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
    return (
        bool(conv.get("transposed", False))
        and as_size(conv.get("groups", 1)) == as_size(1)
        and all(as_size(size) == as_size(0) for size in _each(conv["padding"]))
    )


def single_channel(graph: Graph, node: Node) -> Rewrite | None:
    """A convolution of one tap to one channel is a sum of the channels with a weight each.

    A product would fill one column of its tiles. As a sum it shares a pass with what makes the channels (the
    softmax over the bins of a distance, whose mean this is) and with what follows.
    """
    if node.op != "conv" or not _is_single_channel(graph, node):
        return None
    x, weight, made = graph.value(str(node.inputs[0])), graph.value(str(node.inputs[1])), graph.result(node)
    draft = Draft(graph, node)
    factors = [_single(draft, value.name, value.dtype) for value in (x, weight)]
    each = draft.add("pointwise", factors, x.shape, "mul", "float32", fn="mul", scalars=())
    last = draft.add("reduce", [each], made.shape, "sum", "float32", fn="sum", dims=(1,), keepdim=True)
    if len(node.inputs) > 2 and (bias := node.inputs[2]) is not None:
        bias = _single(draft, bias, graph.value(bias).dtype)
        last = draft.add("pointwise", [last, bias], made.shape, "add", "float32", fn="add", scalars=())
    if made.dtype != "float32":
        draft.add("pointwise", [last], made.shape, "cast", fn="cast", scalars=())
    return draft.done()


def _single(draft: Draft, name: str, dtype: str) -> str:
    """In fp32: what is multiplied and added is rounded once, at the end."""
    if dtype == "float32":
        return name
    shape = draft.value(name).shape
    return draft.add("pointwise", [name], shape, "cast", "float32", fn="cast", scalars=())


def _is_single_channel(graph: Graph, conv: Node) -> bool:
    x, weight, made = graph.value(str(conv.inputs[0])), graph.value(str(conv.inputs[1])), graph.result(conv)
    dtypes = {value.dtype for value in (x, weight, made)}
    return (
        not conv.get("transposed", False)
        and made.shape == (x.shape[0], ONE, *x.shape[2:])
        and all(size == ONE for size in (weight.shape[0], *weight.shape[2:]))
        and weight.shape[1] == x.shape[1]
        and x.shape[1].value <= MOST_CHANNELS
        and len(dtypes) == 1
        and dtypes <= set(FLOATS)
        and all(as_size(size) == as_size(0) for size in _each(conv["padding"]))
        and all(as_size(size) == ONE for size in _each(conv["stride"]))
    )


def _each(attribute: Any) -> tuple[Any, ...]:
    return tuple(attribute) if isinstance(attribute, tuple | list) else (attribute,)


RULES: tuple[Rule, ...] = (summed, single_channel)
