"""Large batches of products that are one tile each: pairs of a sample's features, scores of short rows.

Every element of an operand is needed by one program alone, and what hides a program's loads is the programs
beside it. So a tile is no larger than the product, with few warps, nothing is packed first (a pass that no
two programs share), and sums are left to the tensor cores: ordinary units would end sums of few elements
across lanes.

Seen on an H200 without such tiles: 10752 fp32 products of 42 x 42 x 8 took 285 us with packed operands, the
library 83; as many of 42 x 8 x 42 took 500 us as a pass over the larger operand, the library 71.
"""

from __future__ import annotations

from egg.expert.patterns.product.problem import Problem
from egg.expert.sizes import ONE
from egg.hardware.gpus import Gpu

LEAST = 8
"""Products per multiprocessor that make a batch large."""
MOST_DEPTH = 512
"""The longest sum: a longer one hides its own loads."""
TINY = 16
"""Rows and columns up to which each product is one warp's."""
TINY_TILES = (TINY, TINY, 64, 1, 1)
"""Its tile: what the summed dimension has beyond 64 would take room from other programs. Those are what
hides its loads, so none run ahead: a stage keeps a tile of every tensor that an operand is joined from."""
SMALL, SMALL_DEPTH = 64, 32
"""Rows and columns up to which each fp32 product is one tile, and what that sums at once."""
WARP_SHARE = 1024
"""Elements of a result, or of the operands of a step, for each warp of such a tile: 32 registers a thread."""
MOST_WARPS = 4


def tiny(problem: Problem, gpu: Gpu) -> bool:
    """Whether a warp for each product fills the GPU. A tile for four warps would be mostly beyond its rows
    and columns."""
    return _many(problem, gpu, TINY)


def small(problem: Problem, gpu: Gpu, grade: str) -> bool:
    """Whether each product gets :func:`small_tile`: fp32 accuracy by products of TF32 parts. A single row or
    column leaves nothing to multiply by tiles."""
    if grade not in ("fp32", "tf32x3") or gpu.vendor != "nvidia" or ONE in (problem.rows, problem.columns):
        return False
    return _many(problem, gpu, SMALL) and max(problem.rows.value, problem.columns.value) > TINY


def small_tile(problem: Problem) -> tuple[int, int, int, int, int]:
    """Rows, columns, summed dimension, warps and stages."""
    m, n = (_tile(size.value) for size in (problem.rows, problem.columns))
    k = min(SMALL_DEPTH, _tile(problem.depth.value))
    share = max(m * n, (m + n) * k) // WARP_SHARE
    warps = min(MOST_WARPS, 1 << max(0, share.bit_length() - 1))
    return m, n, k, warps, 2 if problem.depth.value > k else 1


def _many(problem: Problem, gpu: Gpu, most: int) -> bool:
    return (
        max(problem.rows.value, problem.columns.value) <= most
        and problem.depth.value <= MOST_DEPTH
        and problem.batch.value >= LEAST * gpu.sms
    )


def _tile(value: int) -> int:
    """The least power of two that holds it and that tensor cores take."""
    return max(16, 1 << (value - 1).bit_length())
