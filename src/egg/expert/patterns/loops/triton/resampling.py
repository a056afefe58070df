"""Elements of a resized image: neighbours in the source, at places that the kernel counts, by their weights.

Along each dimension an element of the result lies at ``(i + 0.5) * scale - 0.5`` of the source (``i * scale``
where corners are aligned). The elements around that place make it: two, four for cubic weights, one where
only the nearest counts. Places and weights of a dimension are computed once for an index of the result,
whatever the number of elements read with them.

Places, weights and sums are fp32 as in ATen, in its order: along the last dimension first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from egg.expert.graph import Node, Value
from egg.expert.index import Expr, Index, as_expr
from egg.expert.sizes import Size

SHARPNESS = -0.75
"""The parameter of cubic convolution that PyTorch has."""


@dataclass(frozen=True)
class Tap:
    """A neighbour along one dimension: its place, and the text of its weight."""

    place: Expr
    weight: str = ""


@dataclass(frozen=True)
class Kernel:
    """What a kernel offers to this module."""

    let: Callable[[str, str], str]
    """Computes something under a name like the first argument."""
    place: Callable[[str, Expr, Size], Expr]
    """Computes a place along a dimension of that size, which varies with an index of the result."""
    read: Callable[[Index], str]
    """The source at an index."""


@dataclass(frozen=True)
class Axis:
    """A dimension that is resized, at an index of the result."""

    kernel: Kernel
    aligned: bool
    at: Expr
    size: Size
    """Of the source."""
    scale: str

    def let(self, name: str, text: str) -> str:
        return self.kernel.let(name, text)

    def count(self, shift: float) -> str:
        """The index plus ``shift`` in elements of the source, as fp32."""
        at = f"tl.full((), {self.at}, tl.float32)" if self.at.is_constant else f"({self.at}).to(tl.float32)"
        return f"({at} + {shift}) * {self.scale}" if shift else f"{at} * {self.scale}"

    def centre(self) -> str:
        return self.count(0.0) if self.aligned else f"{self.count(0.5)} - 0.5"

    def place(self, text: str) -> Expr:
        return self.kernel.place(text, self.at, self.size)

    @property
    def last(self) -> Expr:
        return as_expr(self.size) - 1


def resampled(kernel: Kernel, node: Node, source: Value, index: Index) -> str:
    """The result at ``index``."""
    axes: list[tuple[int, list[Tap]]] = []
    for dim, scale in zip(node["axes"], node["scale"], strict=True):
        text = scale.code() if isinstance(scale, Size) else repr(scale)
        axis = Axis(kernel, node["aligned"], index[dim], source.shape[dim], text)
        axes.append((dim, KINDS[node["fn"]](axis)))
    return _summed(kernel, axes, index, node.label or "resized")


def _summed(kernel: Kernel, axes: Sequence[tuple[int, list[Tap]]], index: Index, name: str) -> str:
    """Over the neighbours along the first dimension: the sums over those along the others."""
    if not axes:
        return kernel.read(index)
    (dim, taps), *others = axes
    terms: list[str] = []
    for tap in taps:
        text = _summed(kernel, others, (*index[:dim], tap.place, *index[dim + 1 :]), name)
        if not tap.weight:
            return text
        terms.append(f"{tap.weight} * {text if text.isidentifier() else f'({text})'}")
    return kernel.let(name, " + ".join(terms))


def _nearest(axis: Axis) -> list[Tap]:
    return [Tap(axis.place(f"tl.minimum(({axis.count(0.0)}).to(tl.int32), {axis.last})"))]


def _nearest_exact(axis: Axis) -> list[Tap]:
    """To the middle of an element, where the others take the first corner."""
    return [Tap(axis.place(f"tl.minimum(({axis.count(0.5)}).to(tl.int32), {axis.last})"))]


def _linear(axis: Axis) -> list[Tap]:
    """The elements before and behind; behind the last one there is none, and it counts twice. So does the
    only one of a dimension, whose place is a number."""
    centre = axis.centre()
    centre = axis.let("centre", centre if axis.aligned else f"tl.maximum({centre}, 0.0)")
    first = axis.place(f"tl.minimum({centre}.to(tl.int32), {axis.last})")
    second = axis.place(f"tl.minimum({first} + 1, {axis.last})")
    share = axis.let("share", centre if first.is_constant else f"{centre} - {first}.to(tl.float32)")
    return [Tap(first, axis.let("rest", f"1.0 - {share}")), Tap(second, share)]


def _cubic(axis: Axis) -> list[Tap]:
    """Two elements before and two behind; beyond the borders the outermost counts."""
    centre = axis.let("centre", axis.centre())
    floor = axis.let("floor", f"tl.floor({centre})")
    share = axis.let("share", f"{centre} - {floor}")
    rest = axis.let("rest", f"1.0 - {share}")
    weights = [_far(share), _near(share), _near(rest), _far(rest)]
    return [
        Tap(
            axis.place(f"tl.minimum(tl.maximum({floor}.to(tl.int32) + {offset}, 0), {axis.last})"),
            axis.let("weight", weight),
        )
        for offset, weight in zip(range(-1, 3), weights, strict=True)
    ]


def _near(share: str) -> str:
    """The weight of an element less than one away."""
    return f"(({share} * {SHARPNESS + 2} - {SHARPNESS + 3}) * {share} * {share} + 1.0)"


def _far(share: str) -> str:
    """The weight of an element that is one further away than ``share``."""
    away = f"({share} + 1.0)"
    inner = f"({away} * {SHARPNESS} - {5 * SHARPNESS}) * {away} + {8 * SHARPNESS}"
    return f"(({inner}) * {away} - {4 * SHARPNESS})"


KINDS: dict[str, Callable[[Axis], list[Tap]]] = {
    "nearest": _nearest,
    "nearest_exact": _nearest_exact,
    "linear": _linear,
    "cubic": _cubic,
}
