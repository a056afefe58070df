"""What is gathered along a row: sums, extremes, positions, moments and exponentials, each as a state of
one or a few numbers. How kernels gather it is their language's business (:mod:`.triton.gathering`).
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.triton.scalar import FLOATING
from egg.expert.graph import Graph, Node
from egg.expert.parts import Unfit

PARTS: dict[str, tuple[str, ...]] = {
    "sum": ("total",),
    "prod": ("product",),
    "max": ("largest",),
    "min": ("smallest",),
    "any": ("some",),
    "all": ("every",),
    "argmax": ("largest", "where_largest"),
    "argmin": ("smallest", "where_smallest"),
    "moments": ("count", "mean", "squares"),
    "exponentials": ("largest", "total"),
    "selection": ("values", "places"),
}
"""The numbers of a state by its kind, as a reader would call them."""
FOLDED = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""States of one number each, which joins by one instruction."""


@dataclass(frozen=True)
class Statistic:
    """One gathering of a group: of which value, what kind of state, and which anchor asks for it."""

    node: Node
    kind: str
    power: float | None = None
    """Elements are raised to it by absolute value first: 2 for sums of squares."""
    dtype: str = "float32"
    """What it is gathered in: ``float32``, or integers."""

    @property
    def name(self) -> str:
        return self.node.outputs[0]

    @property
    def stem(self) -> str:
        return self.node.label or str(self.node.get("fn") or self.node.op)

    @property
    def parts(self) -> tuple[str, ...]:
        return PARTS[self.kind]

    @property
    def row_parts(self) -> tuple[str, ...]:
        """Those of a whole row's state: how many elements it has is known."""
        return tuple(part for part in self.parts if part != "count")

    @property
    def types(self) -> tuple[str, ...]:
        """Of the state's numbers, as in memory."""
        if self.kind in ("any", "all"):
            return ("int32",)
        return (self.dtype, "int32") if self.kind.startswith("arg") else (self.dtype,) * len(self.parts)


def statistic_of(graph: Graph, node: Node) -> Statistic:
    """What an anchor gathers."""
    dtype = graph.value(str(node.inputs[0])).dtype
    if dtype not in FLOATING:
        dtype = "int64"
    elif dtype != "float64":
        dtype = "float32"
    if node.op == "selection":
        return Statistic(node, "selection", None, "int64" if dtype == "int64" else "float32")
    if node.op == "softmax":
        return Statistic(node, "exponentials")
    if node.op == "norm":
        return Statistic(node, "sum", 2.0) if node["kind"] == "rms" else Statistic(node, "moments")
    fn = node["fn"]
    match fn:
        case "sum" | "mean":
            return Statistic(node, "sum", None, "float32" if fn == "mean" and dtype == "int64" else dtype)
        case "max" | "min" | "prod" | "any" | "all" | "argmax" | "argmin":
            return Statistic(node, fn, None, dtype)
        case "var":
            return Statistic(node, "moments")
        case "logsumexp":
            return Statistic(node, "exponentials")
        case "norm":
            order = float(node.get("order", 2.0) or 2.0)
            return Statistic(node, "max" if order == float("inf") else "sum", order)
    raise Unfit(f"no kernel for the reduction {fn}")
