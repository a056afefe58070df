"""How many programs a generated kernel is launched with, as the host writes it.

Inductor names a rule for each kernel (``grid_type``); the rule divides the kernel's extents (``xnumel``) by
its blocks (``XBLOCK``). Rules that need more than that (reductions whose programs all wait for each other,
kernels from templates) are not known here, and keep a graph from being taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from egg.expert.parts import Unfit

SPLIT_SCAN = "SplitScanGrid"
"""The rule of scans along rows that several programs share."""
MOST_Y = 65535
"""Programs along the second and the third axis of a grid, at most."""


@dataclass(frozen=True)
class Extents:
    """What a grid is computed from."""

    numels: Mapping[str, int]
    """``xnumel`` and the like."""
    names: Mapping[str, str]
    """What the host calls each block that the launch chooses: ``XBLOCK`` to ``NORM_XBLOCK``."""
    smallest: Mapping[str, int]
    """The least value that each of them may get."""

    def along(self, extent: str, block: str) -> str:
        """Programs along an axis; one for each element where no block is chosen."""
        if extent not in self.numels:
            raise Unfit(f"a kernel's grid depends on {extent}, which its launch does not give")
        count = self.numels[extent]
        return f"triton.cdiv({count}, {self.names[block]})" if block in self.names else str(count)

    def most(self, extent: str, block: str) -> int:
        """The same as a number, at the smallest block."""
        return -(-self.numels[extent] // self.smallest.get(block, 1))


def grid_text(kind: str, extents: Extents) -> str:
    """The grid of a kernel as a tuple."""
    rule = _RULES.get(kind)
    if rule is None:
        raise Unfit(f"a kernel is launched with the grid {kind}, which is not known")
    texts = rule(extents)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _rows(extents: Extents) -> Sequence[str]:
    return [extents.along("xnumel", "XBLOCK")]


def _plane(extents: Extents) -> Sequence[str]:
    return [*_rows(extents), extents.along("ynumel", "YBLOCK")]


def _space(extents: Extents) -> Sequence[str]:
    return [*_plane(extents), extents.along("znumel", "ZBLOCK")]


def _wide_plane(extents: Extents) -> Sequence[str]:
    """The second axis goes on along the third where it is longer than a GPU takes."""
    x, y = _plane(extents)
    layers = -(-extents.most("ynumel", "YBLOCK") // MOST_Y)
    return [x, y] if layers <= 1 else [x, f"triton.cdiv({y}, {layers})", str(layers)]


def _mixed(extents: Extents) -> Sequence[str]:
    return [extents.along("xnumel", "RSPLIT_SIZE")]


def _shared_rows(extents: Extents) -> Sequence[str]:
    """Pieces of a row along the first axis, so that a GPU starts them in their order; a row has a place along
    the second."""
    if extents.numels.get("xnumel", 0) > MOST_Y:
        raise Unfit(f"a scan has {extents.numels['xnumel']} rows, more than a grid's second axis")
    return [extents.along("r0_numel", "R0_BLOCK"), extents.along("xnumel", "XBLOCK")]


_RULES: Mapping[str, Callable[[Extents], Sequence[str]]] = {
    "Grid1D": _rows,
    "Grid2D": _plane,
    "Grid3D": _space,
    "Grid2DWithYZOverflow": _wide_plane,
    "BatchMatmulGrid3D": lambda extents: _space(extents)[::-1],
    "MixOrderReductionGrid": _mixed,
    SPLIT_SCAN: _shared_rows,
}
