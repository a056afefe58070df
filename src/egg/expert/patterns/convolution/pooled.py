"""Pools behind a convolution, taken where its sums are.

Output positions are counted window by window: first the places of one window, then those of the next. So a
tile holds whole windows, its columns of one window lie side by side, and a pool is a reduction over so many
neighbouring columns, in registers. Only its result is written. Positions that a pool leaves out at the end
of an axis are never counted, so they are never computed either. Pools behind pools nest: the windows of the
first are counted by windows of the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from egg.expert.graph import Graph, Node
from egg.expert.index import Expr, Index, loop_index, unflat
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE, Size, product
from egg.expert.window import window_of

MOST = 64
"""Positions of one window that a tile holds whatever its size: no tile is smaller."""


def downstream(group: Sequence[Node], first: Node) -> Iterator[Node]:
    """Nodes that depend on the first, in order."""
    met = set(first.outputs)
    for node in group:
        if node is not first and any(name in met for name in node.inputs):
            met.update(node.outputs)
            yield node


@dataclass(frozen=True)
class Windows:
    """The pools of a group, the first one first. *Level* 0 are the positions of the convolution, level 1
    the results of the first pool."""

    pools: tuple[Node, ...]
    kernels: tuple[tuple[int, ...], ...]
    """Of each pool, per axis."""
    shapes: tuple[tuple[Size, ...], ...]
    """Of each level's space."""
    batch: Size
    imaged: bool = False
    """Counted for each image anew."""

    @classmethod
    def of(
        cls, graph: Graph, group: Sequence[Node], conv: Node, phased: bool, imaged: bool = False
    ) -> Windows | None:
        """``None`` where there is no pool; :class:`Unfit` where one is no reduction within a tile."""
        pools = tuple(node for node in downstream(group, conv) if node.op == "pool")
        if not pools:
            return None
        rank = graph.result(conv).rank - 2
        kernels = tuple(_kernel(graph, pool, rank) for pool in pools)
        whole = prod(prod(kernel) for kernel in kernels)
        if phased or whole > MOST or whole & (whole - 1):
            raise Unfit(f"windows of {whole} positions after this convolution")
        shapes = tuple(graph.result(node).shape[2:] for node in (conv, *pools))
        return cls(pools, kernels, shapes, graph.result(conv).shape[0], imaged)

    def elements(self, level: int) -> int:
        """Of this level in one of the last."""
        return prod(prod(kernel) for kernel in self.kernels[level:])

    def positions(self, level: int) -> int:
        """Of the convolution in one element of this level."""
        return prod(prod(kernel) for kernel in self.kernels[:level])

    def counted(self, level: int) -> Size:
        """All elements of a level that are counted."""
        return (ONE if self.imaged else self.batch) * product(self.shapes[-1]) * self.elements(level)

    def places(self, level: int, name: str) -> tuple[Expr, Index]:
        """The image and the coordinates of the element with the number ``name``."""
        rest = loop_index(name, self.counted(level))
        at = [Expr()] * len(self.shapes[0])
        scale = [1] * len(at)
        for kernel in self.kernels[level:]:
            place = rest % prod(kernel)
            rest = rest // prod(kernel)
            for axis, digit in enumerate(unflat(place, tuple(Size(side) for side in kernel))):
                at[axis] = at[axis] + digit * scale[axis]
                scale[axis] *= kernel[axis]
        image, *outer = unflat(rest, (ONE if self.imaged else self.batch, *self.shapes[-1]))
        return image, tuple(more * step + inner for more, step, inner in zip(outer, scale, at, strict=True))

    def index(self, level: int, channel: Expr) -> Index:
        """Of a pool's result, by variables of its own."""
        space = loop_index(f"s{level}", product(self.shapes[level]))
        return loop_index(f"n{level}", self.batch), channel, *unflat(space, self.shapes[level])

    def masks(self) -> dict[str, str]:
        return {
            f"{word}{level}": f"inside{level}" for level in range(1, len(self.shapes)) for word in ("n", "s")
        }


def _kernel(graph: Graph, pool: Node, rank: int) -> tuple[int, ...]:
    window = window_of(graph, pool)
    if pool["fn"] not in ("max", "avg") or len(pool.outputs) != 1 or window.rank != rank:
        raise Unfit(f"{pool['fn']} pooling after a convolution")
    if window.stride != window.kernel or any(window.padding) or any(step != 1 for step in window.dilation):
        raise Unfit("windows that overlap, or reach beyond the border")
    if pool.get("ceil") or pool.get("divisor"):
        raise Unfit("windows that are cut off, or a divisor of their own")
    return window.kernel
