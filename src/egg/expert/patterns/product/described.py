"""Operands that the copy engine brings: matrices of 16 or 8 bits that are read as they lie, tile by tile.

From sm_90 on a tile of a matrix can be described to the hardware, which computes its addresses, fills what
lies beyond the edges with zeros and writes it into shared memory by itself. A tile that threads load costs
registers for addresses and masks, and their time: on an H200 a bf16 product of 4096 cubed reaches 540 TFLOP/s
with such loads and 720 without them. Only matrices with one contiguous dimension can be described, and the
host spends a few microseconds on each description, so small products do without.

Rows must begin at multiples of 16 bytes. Where they do not (another size, a tensor that begins in the middle
of its memory) the host copies the matrix first, so that the kernel is right whatever it is given. A weight
with such rows is copied once, and the copy is kept until the weight changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from egg.expert.emit.reader import address
from egg.expert.graph import BYTES, Value
from egg.expert.index import Expr, Index, loop_index
from egg.expert.parts import Target
from egg.expert.patterns.product.problem import Problem, Span
from egg.expert.patterns.product.rules import LAUNCH, Way, by_warp_group
from egg.expert.sizes import ONE, Size

ALIGNED = 16
"""Bytes at whose multiples rows must begin."""
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
PADDING = "with_aligned_rows"
PADDING_TEXT = '''def with_aligned_rows(weight, *widths):
    """The columns of a weight in parts of these widths, with rows that begin at multiples of 16 bytes."""
    each, parts = 16 // weight.element_size(), []
    for part in weight.split(widths, 1):
        rows, columns = part.shape
        parts.append(weight.new_empty((rows, triton.cdiv(columns, each) * each)))
        parts[-1][:, :columns] = part
    return parts'''
"""A function of the host, whose result is kept."""


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
    begin: Expr
    """Where the span of the summed dimension begins. What is described begins and ends with the span, so that
    a block beyond it is zero in both operands."""
    padded: bool = False
    """Its rows do not begin at multiples of 16 bytes: a copy of the weight is kept, in which they do."""

    def given(self, spelling: str, side: str, meta: Mapping[str, str]) -> str:
        """The host's text that describes it; ``spelling``: of the value, or of the copy."""
        own = meta["BLOCK_M" if side == "left" else "BLOCK_N"]
        block = [own, meta["BLOCK_K"]] if self.along_depth else [meta["BLOCK_K"], own]
        stride = f"{spelling}.stride(0)" if self.padded else self.stride
        if self.begin != Expr() and not self.padded:
            spelling += self._from_begin()
        return f"{HELPER}({spelling}, [{self.rows}, {self.columns}], {stride}, [{', '.join(block)}])"

    def _from_begin(self) -> str:
        """What follows the spelling of a contiguous tensor of which a later part is described.

        A matrix is cut along one of its dimensions; any other tensor (a weight of a convolution), whose
        dimensions are not the matrix's, at an element.
        """
        if self.value.rank == 2 and self.value.stride[0] == self.stride:
            return f"[..., {self.begin}:]" if self.along_depth else f"[{self.begin}:]"
        return f".view(-1)[{self.begin if self.along_depth else self.begin * self.stride}:]"

    def load(self, tiles: str, at: str) -> str:
        """The kernel's text that loads one tile; ``at``: its row, or column, in the matrix."""
        places = [at, "k_start"] if self.along_depth else ["k_start", at]
        return f"{tiles}.load([{', '.join(places)}])"


def wanted(problem: Problem, target: Target, way: Way) -> bool:
    """Whether operands that can be described are: by setting, else where the product is long enough."""
    if (
        way.mode != "direct"
        or way.grade not in ("half", "int8")
        or max(way.tiles.m, way.tiles.n) > LARGEST_BLOCK
    ):
        return False
    sides = ((side, problem.operand_index(side, problem.whole)) for side in (problem.left, problem.right))
    if any(problem.triangle(operand.name, index) is not None for operand, index in sides):
        return False  # what lies beyond a cut in the middle of a block must be read as zero
    return bool(target.settings.get("descriptors", by_warp_group(target.gpu) and way.seconds >= WORTH))


def describe(
    problem: Problem,
    operand: Value,
    index: Index,
    names: tuple[str, str, str],
    span: Span,
    pads: Collection[str] = (),
) -> Described | None:
    """An operand at ``index``; ``None`` where it is computed, or is no such matrix.

    ``names``: of its loops over the batch, over its own dimension and over the span of the summed one.
    ``pads``: weights of which a copy may be kept, whose rows begin at multiples of 16 bytes.
    """
    stored = problem.stored(operand.name, index)
    if stored is None:
        return None
    value, at = stored
    place = address(value, at)
    batches, own = problem.batch, problem.rows if operand is problem.left else problem.columns
    loops = [loop_index(name, size) for name, size in zip(names, (batches, own, span.size), strict=True)]
    by_batch, by_own, by_depth = (place.stride_of(name) for name in names)
    if by_batch is None or by_own is None or by_depth is None:
        return None
    rest = place - loops[0] * by_batch - loops[1] * by_own - loops[2] * by_depth
    if rest not in (Expr(), span.start * by_depth):
        return None
    begin = Expr() if rest == Expr() else span.start
    if begin != Expr() and not value.contiguous:
        return None
    if by_depth == ONE:
        outer, inner, stride = own, span.size, by_own
    elif by_own == ONE and by_batch == ZERO:
        outer, inner, stride = span.size, own, by_depth
    else:
        return None
    if stride.value < inner.value:
        return None
    begins = begin.low[0] * (1 if by_depth == ONE else stride.value)
    padded = any(place * BYTES[value.dtype] % ALIGNED for place in (stride.value, begins))
    if padded and not (value.name in pads and _pads(problem, value, stride, by_depth)):
        return None
    if by_batch == ZERO:
        return Described(value, outer, inner, stride, by_depth == ONE, Expr(), begin, padded)
    if by_batch != outer * stride:
        return None
    return Described(value, outer * batches, inner, stride, True, loops[0] * outer, begin)


def _pads(problem: Problem, value: Value, stride: Size, by_depth: Size) -> bool:
    """Whether a value is a plain matrix whose rows are summed over, wholly."""
    whole = value.rank == 2 and value.shape[1] == problem.depth
    return whole and value.stride == (stride, ONE) and by_depth == ONE
