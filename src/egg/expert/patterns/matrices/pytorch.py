"""Small factorisations as PyTorch's calls, which raise by themselves."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, call
from egg.expert.graph import Node


def _coded(speller: Speller, node: Node, function: str, *operands: str, **options: str | None) -> str:
    """With error codes where they are asked for; a function whose name ends with ``_ex`` looks at them where
    it is told to."""
    codes = len(node.outputs) > 1
    check = "True" if codes and node["raises"] else None
    text = call(f"torch.linalg.{function}{'_ex' if codes else ''}", *operands, **options, check_errors=check)
    return f"{', '.join(node.outputs)} = {text}"


def cholesky_call(speller: Speller, node: Node) -> str:
    upper = "True" if node["upper"] else None
    return _coded(speller, node, "cholesky", speller.operand(node), upper=upper)


def inverse_call(speller: Speller, node: Node) -> str:
    return _coded(speller, node, "inv", speller.operand(node))


def solve_call(speller: Speller, node: Node) -> str:
    return _coded(speller, node, "solve", speller.operand(node, 0), speller.operand(node, 1))


def determinant_call(speller: Speller, node: Node) -> str:
    function = "slogdet" if node["log"] else "det"
    return f"{', '.join(node.outputs)} = torch.linalg.{function}({speller.operand(node)})"
