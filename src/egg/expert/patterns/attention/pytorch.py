"""Attention as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call, number_text
from egg.expert.graph import Node


def attention_call(speller: Speller, node: Node) -> str:
    q, k, v = (speller.operand(node, place) for place in (0, 1, 2))
    mask, scale = speller.optional(node, 3), node.get("scale")
    text = call(
        "nn.functional.scaled_dot_product_attention", q, k, v, attn_mask=mask,
        is_causal="True" if node.get("causal") else None, scale=None if scale is None else number_text(scale),
        enable_gqa="True" if node.get("grouped") else None,
    )  # fmt: skip
    return f"{node.outputs[0]} = {text}"
