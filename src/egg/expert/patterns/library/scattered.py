"""A scatter as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, number_text
from egg.expert.graph import Node


def scatter_call(speller: Speller, node: Node) -> str:
    """``torch.full(...).scatter_add(0, index.expand_as(source), source)``; the index is not copied."""
    made, source = speller.graph.result(node), speller.operand(node)
    chosen = speller.graph.value(str(node.inputs[1]))
    index = speller.operand(node, 1) + (".long()" if chosen.dtype != "int64" else "")
    if chosen.shape != speller.graph.value(str(node.inputs[0])).shape:
        index += f".expand_as({source})"
    kind = f"dtype=torch.{made.dtype}, device={speller.device()}"
    base = f"torch.full({speller.shape(made.shape)}, {number_text(node['fill'])}, {kind})"
    if node["fn"] == "sum":
        return f"{base}.scatter_add({node['dim']}, {index}, {source})"
    return f'{base}.scatter_reduce({node["dim"]}, {index}, {source}, "a{node["fn"]}")'
