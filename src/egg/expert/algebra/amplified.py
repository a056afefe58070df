"""Exponentials of cumulative sums: the one place where a program shows its last bits.

A sum near 40 has a last bit of 4e-6, and ``exp`` makes a relative error of it. PyTorch's own result has that
error as well, but it is judged by that: a kernel may err about twice as much, and has two ways to do so. The
usual ``tl.exp`` multiplies by log2(e) first and rounds there, which costs as much again as the sum's own
rounding; and a scan within a thread adds up one by one where PyTorch's goes by halves. So both are made
exact: the exponential is libdevice's, which keeps what that product rounds off, and the sum is carried in
fp64 and rounded once. Both are a few instructions beside the loads of a pass over memory.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.algebra.rewrite import Rewrite, Rule, instead
from egg.expert.graph import Graph, Node

_LINEAR = frozenset({"add", "sub", "rsub", "neg", "masked_fill", "where"})
"""Functions that hand on a sum's absolute error as it is."""
_PASSED = frozenset({"view", "cat", "pad", "where"})


def exact_exponential(graph: Graph, node: Node) -> Rewrite | None:
    """``exp`` of cumulative sums, or of differences of them."""
    if not _exponential(node) or node.get("exact") or graph.result(node).dtype != "float32":
        return None
    waiting, met = [str(node.inputs[0])], set[str]()
    while waiting:
        made = graph.producer(waiting.pop())
        if made is None or made.outputs[0] in met:
            continue
        met.add(made.outputs[0])
        if _sums(made):
            return instead(replace(node, attributes={**node.attributes, "exact": True}))
        if _hands_on(made):
            waiting += [name for name in made.inputs if name is not None]
    return None


def exact_sum(graph: Graph, node: Node) -> Rewrite | None:
    """A cumulative sum of which an exponential is taken."""
    if not _sums(node) or node.get("exact") or graph.result(node).dtype != "float32":
        return None
    waiting, met = [node.output], set[str]()
    while waiting:
        for reader in graph.consumers[waiting.pop()]:
            if _exponential(reader):
                return instead(replace(node, attributes={**node.attributes, "exact": True}))
            if (_hands_on(reader) or _sums(reader)) and reader.outputs[0] not in met:
                met.add(reader.outputs[0])
                waiting.append(reader.outputs[0])
    return None


def _exponential(node: Node) -> bool:
    return node.op == "pointwise" and node["fn"] == "exp"


def _sums(node: Node) -> bool:
    return node.op == "scan" and node["fn"] == "sum"


def _hands_on(node: Node) -> bool:
    return node.op in _PASSED or (node.op == "pointwise" and node["fn"] in _LINEAR)


RULES: tuple[Rule, ...] = (exact_exponential, exact_sum)
