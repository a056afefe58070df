"""A triangular system as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call
from egg.expert.graph import Node


def solve_call(speller: Speller, node: Node) -> str:
    text = call(
        "torch.linalg.solve_triangular", speller.operand(node, 0), speller.operand(node, 1),
        upper=str(bool(node["upper"])), unitriangular="True" if node["unit"] else None,
    )  # fmt: skip
    return f"{node.output} = {text}"
