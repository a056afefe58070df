"""Attention as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call, number_text
from egg.expert.graph import Node
from egg.expert.patterns.attention.problem import Function
from egg.expert.patterns.scalar_calls import scalar_call


def attention_call(speller: Speller, node: Node) -> str:
    q, k, v = (speller.operand(node, place) for place in (0, 1, 2))
    mask, scale = speller.optional(node, 3), node.get("scale")
    if _is_written_out(node):
        return f"{node.outputs[0]} = {_written_out(speller, node)}"
    text = call(
        "nn.functional.scaled_dot_product_attention", q, k, v, attn_mask=mask,
        is_causal="True" if node.get("causal") else None, scale=None if scale is None else number_text(scale),
        enable_gqa="True" if node.get("grouped") else None,
    )  # fmt: skip
    return f"{node.outputs[0]} = {text}"


def _is_written_out(node: Node) -> bool:
    """Whether PyTorch has no call for it: products and a softmax over stored scores take its place."""
    return node.get("fill") is not None or len(node.inputs) > 4


def _written_out(speller: Speller, node: Node) -> str:
    """With a finite score for what is masked, which a row that sees nothing has everywhere; with functions of
    the score; with a sink as one more column."""
    q, k, v = (speller.operand(node, place) for place in (0, 1, 2))
    mask, scale = speller.optional(node, 3), node.get("scale")
    factor = f"{q}.shape[-1] ** -0.5" if scale is None else number_text(scale)
    scores = _through_functions(speller, node, f"{q} @ {k}.transpose(-2, -1) * ({factor})")
    fill = number_text(node.get("fill", float("-inf")))
    if node.get("causal"):
        mask = f"torch.ones({q}.shape[-2], {k}.shape[-2], dtype=torch.bool, device={q}.device).tril()"
    elif mask is not None and speller.graph.value(str(node.inputs[3])).dtype != "bool":
        scores, mask = f"({scores} + {mask})", None
    if mask is not None:
        scores = f"torch.where({mask}, {scores}, {fill})"
    if len(node.inputs) <= 4:
        return f"{scores}.softmax(-1) @ {v}"
    sink = speller.optional(node, 4)
    if sink is None:
        return f"torch.softmax({scores}, -1).to({v}.dtype) @ {v}"
    column = f"{sink}.expand(*{q}.shape[:-1], 1)"
    return f"torch.cat(({scores}, {column}), -1).softmax(-1)[..., :-1].to({v}.dtype) @ {v}"


def _through_functions(speller: Speller, node: Node, scores: str) -> str:
    """The functions of the score, each around the one before."""
    others = list(range(5, len(node.inputs)))
    for function in (Function(*step) for step in node.get("steps") or ()):
        tensors = [f"({scores})"]
        if function.place is not None:
            tensors.insert(1 - function.place, speller.operand(node, others.pop(0)))
        operands: list[str | None] = []
        for value in function.scalars:
            operands.append(number_text(value) if value is not None else tensors.pop(0) if tensors else None)
        kinds = [value is None for value in function.scalars] + [True] * len(tensors)
        scores = scalar_call(function.fn, [*operands, *tensors], kinds, "float32")
    return scores
