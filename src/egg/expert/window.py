"""What a result reads of its neighbourhood: the window of a pool in plain numbers, neighbours of a resize."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from egg.expert.graph import Graph, Node
from egg.expert.parts import Unfit
from egg.expert.sizes import Size, as_size, product


@dataclass(frozen=True)
class Window:
    """A pooling window, in plain numbers per spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def taps(self) -> int:
        return prod(self.kernel)


def window_of(graph: Graph, node: Node) -> Window:
    """An adaptive pool is an ordinary one where the sizes divide."""
    kernel = tuple(node["kernel"])
    rank = len(kernel)
    if node.get("adaptive"):
        sizes = graph.value(str(node.inputs[0])).shape[-rank:]
        quotients = [size.over(as_size(out)) for size, out in zip(sizes, kernel, strict=True)]
        plain = tuple(_plain(q) for q in quotients)
        return Window(plain, plain, (0,) * rank, (1,) * rank)
    kernel = tuple(_plain(k) for k in kernel)
    stride = tuple(_plain(s) for s in _each(node.get("stride"), kernel, rank))
    padding = tuple(_plain(s) for s in _each(node.get("padding"), (0,) * rank, rank))
    dilation = tuple(_plain(s) for s in _each(node.get("dilation"), (1,) * rank, rank))
    return Window(kernel, stride, padding, dilation)


def _each(given: Any, default: tuple[int, ...], rank: int) -> tuple[Any, ...]:
    if given is None or given == ():
        return default
    return tuple(given) if len(given) == rank else tuple(given) * rank


def _plain(size: Size | int | None) -> int:
    if size is None or (isinstance(size, Size) and size.factors):
        raise Unfit("a pooling window whose size changes with the program's")
    return size.number if isinstance(size, Size) else int(size)


NEIGHBOURS = {"nearest": 1, "nearest_exact": 1, "linear": 2, "cubic": 4}
"""Elements that a resize reads along each dimension."""


def reads_each(graph: Graph, node: Node) -> float:
    """How often an element of the operand is read on average: what fusing its producer into a pool or a
    resize multiplies that one's work by."""
    if node.op == "pool":
        return _overlap(window_of(graph, node))
    if node.op == "resample":
        source, made = graph.value(str(node.inputs[0])), graph.result(node)
        return NEIGHBOURS[node["fn"]] ** len(node["axes"]) * made.elements.value / source.elements.value
    if node.op == "view" and node["how"] == "windows":
        return graph.result(node).elements.value / graph.value(str(node.inputs[0])).elements.value
    return 1.0


def _overlap(window: Window) -> float:
    taken = float(product(Size(k) for k in window.kernel).value)
    return taken / product(Size(s) for s in window.stride).value
