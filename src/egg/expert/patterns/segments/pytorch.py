"""A scatter as PyTorch's call."""

from __future__ import annotations

from egg.expert.emit.spelling import Speller, begun, number_text
from egg.expert.graph import Node


def scatter_call(speller: Speller, node: Node) -> str:
    """``y = torch.full(...).scatter_add(0, index.expand_as(source), source)``; the index is not copied."""
    made, source = speller.graph.result(node), speller.operand(node)
    chosen = speller.graph.value(str(node.inputs[1]))
    index = speller.operand(node, 1) + (".long()" if chosen.dtype != "int64" else "")
    if chosen.shape != speller.graph.value(str(node.inputs[0])).shape:
        index += f".expand_as({source})"
    kind, shape, dim = f"dtype=torch.{made.dtype}, device={speller.device()}", list(made.shape), node["dim"]
    shape[dim] = node.get("whole", shape[dim])
    if len(node.inputs) > 2:
        return f"{node.output} = {begun(speller.graph, node)}.scatter_({node['dim']}, {index}, {source})"
    base = f"torch.full({speller.shape(tuple(shape))}, {number_text(node['fill'])}, {kind})"
    call = {"sum": "scatter_add", "store": "scatter"}.get(node["fn"], "scatter_reduce")
    how = f', "a{node["fn"]}"' if call == "scatter_reduce" else ""
    cut = f".narrow({dim}, 0, {speller.size(made.shape[dim])})" if "whole" in node.attributes else ""
    return f"{node.output} = {base}.{call}({dim}, {index}, {source}{how}){cut}"
