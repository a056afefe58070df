"""Attention as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call, number_text
from egg.expert.graph import Node


def attention_call(speller: Speller, node: Node) -> str:
    q, k, v = (speller.operand(node, place) for place in (0, 1, 2))
    mask, scale = speller.optional(node, 3), node.get("scale")
    if node.get("fill") is not None:
        return f"{node.outputs[0]} = {_written_out(node, (q, k, v), mask)}"
    text = call(
        "nn.functional.scaled_dot_product_attention", q, k, v, attn_mask=mask,
        is_causal="True" if node.get("causal") else None, scale=None if scale is None else number_text(scale),
        enable_gqa="True" if node.get("grouped") else None,
    )  # fmt: skip
    return f"{node.outputs[0]} = {text}"


def _written_out(node: Node, operands: tuple[str, str, str], mask: str | None) -> str:
    """With a finite score for what is masked, which a row that sees nothing has everywhere."""
    q, k, v = operands
    scale, fill = node.get("scale"), number_text(node["fill"])
    factor = f"{q}.shape[-1] ** -0.5" if scale is None else number_text(scale)
    seen = mask or f"torch.ones({q}.shape[-2], {k}.shape[-2], dtype=torch.bool, device={q}.device).tril()"
    scores = f"torch.where({seen}, {q} @ {k}.transpose(-2, -1) * ({factor}), {fill})"
    return f"{scores}.softmax(-1) @ {v}"
