"""A product as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller
from egg.expert.graph import Node
from egg.expert.parts import spelled


def product_call(speller: Speller, node: Node) -> str:
    """As ``linear`` where the second operand is a weight as PyTorch lays it out: libraries know that best."""
    a, b, bias = (*node.inputs, None)[:3]
    left, right = spelled(speller.graph, str(a)), spelled(speller.graph, str(b))
    weight = speller.transposed_parameter(str(b))
    if weight is not None and (bias is None or speller.graph.value(bias).rank == 1):
        return (
            f"{node.output} = nn.functional.linear({speller.listed((a, weight, *((bias,) if bias else ())))})"
        )
    text = f"{node.output} = torch.matmul({left}, {right})"
    return f"{text} + {spelled(speller.graph, bias)}" if bias is not None else text
