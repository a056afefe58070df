"""Operands that the copy engine brings: 16-bit matrices that are read as they lie, tile by tile.

From sm_90 on a tile of a matrix can be described to the hardware, which computes its addresses, fills what
lies beyond the edges with zeros and writes it into shared memory by itself. A tile that threads load costs
registers for addresses and masks, and their time: on an H200 a bf16 product of 4096 cubed reaches 540 TFLOP/s
with such loads and 720 without them. Only matrices with one contiguous dimension can be described, and the
host spends a few microseconds on each description, so small products do without.

Rows must begin at multiples of 16 bytes. Where they do not (another size, a tensor that begins in the middle
of its memory) the host copies the matrix first, so that the kernel is right whatever it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from egg.expert.emit.reader import address
from egg.expert.graph import Value
from egg.expert.index import Expr, Index, loop_index
from egg.expert.parts import Target
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.rules import LAUNCH, Way, by_warp_group
from egg.expert.sizes import ONE, Size

ALIGNED, ITEM = 16, 2
"""Bytes at whose multiples rows must begin, and of an element."""
LARGEST_BLOCK = 256
"""Elements along one side of a tile that the hardware takes."""
ZERO = Size(0)
WORTH = 4 * LAUNCH
"""Seconds from which on a product is worth its descriptions."""
HELPER = "described"
TEXT = '''def described(matrix, shape, stride, block):
    """Tiles of a matrix for the copy engine, which wants rows that begin at multiples of 16 bytes."""
    each = 16 // matrix.element_size()
    if stride % each or matrix.storage_offset() % each:
        rows, columns = shape
        width = triton.cdiv(columns, each) * each
        copied = torch.empty((rows, width), device=matrix.device, dtype=matrix.dtype)
        copied[:, :columns] = matrix.as_strided(shape, (stride, 1))
        matrix, stride = copied, width
    return TensorDescriptor(matrix, shape, [stride, 1], block)'''


@dataclass(frozen=True)
class Described:
    """One operand as a matrix in memory, all matrices of a batch below one another."""

    value: Value
    rows: Size
    columns: Size
    stride: Size
    along_depth: bool
    """Whether the summed dimension is the contiguous one; else it counts the rows."""
    first: Expr
    """The row at which the matrix of this batch begins."""

    def given(self, spelling: str, side: str, meta: Mapping[str, str]) -> str:
        """The host's text that describes it."""
        own = meta["BLOCK_M" if side == "left" else "BLOCK_N"]
        block = [own, meta["BLOCK_K"]] if self.along_depth else [meta["BLOCK_K"], own]
        return f"{HELPER}({spelling}, [{self.rows}, {self.columns}], {self.stride}, [{', '.join(block)}])"

    def load(self, side: str) -> str:
        """The kernel's text that loads one tile."""
        places = [f"{side}_at", "k_start"] if self.along_depth else ["k_start", f"{side}_at"]
        return f"{side}_tiles.load([{', '.join(places)}])"


def wanted(problem: Problem, target: Target, way: Way) -> bool:
    """Whether operands that can be described are: by setting, else where the product is long enough."""
    if way.mode != "direct" or way.grade != "half" or max(way.tiles.m, way.tiles.n) > LARGEST_BLOCK:
        return False
    batch, row, column, k = (
        loop_index(name, size)
        for name, size in zip(("batch", "row", "column", "k"), _sizes(problem), strict=True)
    )
    sides = (
        (problem.left, problem.left_index(batch, row, k)),
        (problem.right, problem.right_index(batch, k, column)),
    )
    if any(problem.triangle(operand.name, index) is not None for operand, index in sides):
        return False  # what lies beyond a cut in the middle of a block must be read as zero
    return bool(target.settings.get("descriptors", by_warp_group(target.gpu) and way.seconds >= WORTH))


def describe(problem: Problem, operand: Value, index: Index, names: tuple[str, str, str]) -> Described | None:
    """An operand at ``index``; ``None`` where it is computed, or is no such matrix.

    ``names``: of its loops over the batch, over its own dimension and over the summed one.
    """
    stored = problem.stored(operand.name, index)
    if stored is None:
        return None
    value, at = stored
    place = address(value, at)
    batches, rows, columns, depth = _sizes(problem)
    own = rows if operand is problem.left else columns
    loops = [loop_index(name, size) for name, size in zip(names, (batches, own, depth), strict=True)]
    steps = [place.stride_of(name) for name in names]
    by_batch, by_own, by_depth = steps
    if by_batch is None or by_own is None or by_depth is None:
        return None
    if place != loops[0] * by_batch + loops[1] * by_own + loops[2] * by_depth:
        return None
    if by_depth == ONE:
        outer, inner, stride = own, depth, by_own
    elif by_own == ONE and by_batch == ZERO:
        outer, inner, stride = depth, own, by_depth
    else:
        return None
    if stride.value < inner.value or stride.value * ITEM % ALIGNED:
        return None
    if by_batch == ZERO:
        return Described(value, outer, inner, stride, by_depth == ONE, Expr())
    if by_batch != outer * stride:
        return None
    return Described(value, outer * batches, inner, stride, True, loops[0] * outer)


def _sizes(problem: Problem) -> tuple[Size, Size, Size, Size]:
    return problem.batch, problem.rows, problem.columns, problem.depth
