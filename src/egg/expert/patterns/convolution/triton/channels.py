"""Reductions and softmax over the channels of a tile, in the epilogue of a convolution."""

from __future__ import annotations

from egg.expert.emit.reader import Body
from egg.expert.graph import Node

REDUCTIONS = {
    "sum": "0.0", "mean": "0.0", "max": "-float('inf')", "min": "float('inf')", "logsumexp": "-float('inf')",
}  # fmt: skip
"""What can be computed over channels, and what stands for channels that are not there."""
MOST_CHANNELS = 256
"""Output channels that one tile holds."""


def over_channels(body: Body, node: Node, x: str, count: str) -> str:
    """Lines for a reduction or softmax over the channels of a tile, which lie along its first axis."""
    if node.op == "reduce" and node["fn"] not in ("max", "logsumexp"):
        fn = node["fn"]
        text = f"tl.{'min' if fn == 'min' else 'sum'}(tl.where(kept, {x}, {REDUCTIONS[fn]}), axis=0)[None, :]"
        return body.let(fn, f"{text} / ({count})" if fn == "mean" else text)
    x = body.let("seen", f"tl.where(kept, {x}, -float('inf'))")
    top = body.let("highest", f"tl.max({x}, axis=0)[None, :]")
    if node.op == "reduce" and node["fn"] == "max":
        return top
    if node.op == "reduce":
        top = body.let("finite", f"tl.where(tl.abs({top}) == float('inf'), 0.0, {top})")
    powers = body.let("powers", f"tl.exp({x} - {top})")
    total = body.let("total", f"tl.sum({powers}, axis=0)[None, :]")
    if node.op == "reduce":
        return body.let("logsumexp", f"{top} + tl.log({total})")
    if node.get("log"):
        return body.let("logs", f"{x} - {top} - tl.log({total})")
    return body.let("shares", f"{powers} / {total}")
