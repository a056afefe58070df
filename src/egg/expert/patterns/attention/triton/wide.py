"""Attention of wide heads in two kernels.

A head wider than a tile does not fit the accumulator of the one-kernel way. So the first kernel computes a
tile of scores and stores its weights relative to the largest score of each row *within the tile*, with that
maximum and the sum; the second multiplies the weights with the values. It knows the maxima of all tiles
before it begins, so it brings every tile to the row's own maximum with one factor per row, and divides at
the end. Scores are thereby written and read once, as 16-bit numbers, instead of four times.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.patterns.attention.problem import Problem, mask_reader, store_result
from egg.expert.patterns.attention.triton.flash import begin_mask, split_weights, write_mask
from egg.expert.patterns.attention.triton.operands import Tile, Way, load, products, scales_name
from egg.expert.patterns.attention.triton.scores import LIFT, read_others, write_functions, write_sink

Q, K, V = Tile("q", "BLOCK_M", "BLOCK_K"), Tile("k", "BLOCK_N", "BLOCK_K"), Tile("v", "BLOCK_K", "BLOCK_N")

AT_ONCE = 32
"""Tiles whose maxima are loaded together."""
OF_TILES = "tile_m * rows + places[None, :]"
"""Where the maxima and sums of those are."""


@dataclass(frozen=True)
class Wide:
    """Names in ``forward`` of what lies between the two kernels."""

    name: str

    def weights(self, half: str) -> str:
        return f"{self.name}_weights_{half}"

    @property
    def maxima(self) -> str:
        return f"{self.name}_maxima"

    @property
    def partial_sums(self) -> str:
        return f"{self.name}_sums"


def write_scores(problem: Problem, kernel: Kernel, way: Way, between: Wide) -> None:
    """The first kernel."""
    body, line = kernel.body, kernel.body.line
    reader = mask_reader(problem, kernel)
    cast = ".to(tl.int64)" if problem.wide_offsets else ""
    line(f"blocks = tl.cdiv({problem.queries}, BLOCK_M)")
    line(f"tiles = tl.cdiv({problem.keys}, BLOCK_N)")
    line("pid = tl.program_id(0)")
    line(f"batch = (pid // (blocks * tiles)){cast}")
    line("block = pid % blocks")
    line("tile = pid // blocks % tiles")
    if _skips(problem):
        line("if tile * BLOCK_N >= (block + 1) * BLOCK_M:")
        line("    return  # nobody sees these keys")
    line(f"query = (block * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]){cast}")
    line(f"key = (tile * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]){cast}")
    line("places = (batch * blocks + block).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)")
    if way.packed:
        line("q_at = ((batch * blocks + block) * BLOCK_M).to(tl.int32)")
        line("k_at = ((batch * tiles + tile) * BLOCK_N).to(tl.int32)")
    others = read_others(problem, reader)
    column, mask = "tile * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]", ""
    early = way.grade == "half" and problem.mask is not None
    if early:  # on its way during the product
        mask = begin_mask(problem, kernel, reader, column)
    line("scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
    line(f"for k_start in range(0, {problem.depth}, BLOCK_K):")
    body.indent += 1
    if not way.packed:
        line("depth = k_start + tl.arange(0, BLOCK_K)[None, :]")
    load(problem, kernel, way, Q, "q_at", "k_start", problem.q)
    load(problem, kernel, way, K, "k_at", "k_start", problem.k)
    _accumulate(kernel, way, "scores", ("q", "k"), turned=True, factor="")
    body.indent -= 1
    if way.packed:
        kernel.operands["q_scales_ptr"] = scales_name(problem, "q")
        kernel.operands["k_scales_ptr"] = scales_name(problem, "k")
        line("q_scale = tl.load(q_scales_ptr + q_at + tl.arange(0, BLOCK_M)) * score_scale")
        line("k_scale = tl.load(k_scales_ptr + k_at + tl.arange(0, BLOCK_N))")
        line("scores = scores * q_scale[:, None] * k_scale[None, :]")
    else:
        line("scores = scores * score_scale")
    write_functions(problem, kernel, others, way.grade == "half")
    write_mask(problem, kernel, mask if early else begin_mask(problem, kernel, reader, column))
    line("top = tl.max(scores, axis=1)")
    line('base = tl.where(top == -float("inf"), 0.0, top)')
    lift = f"(base - {LIFT})" if way.packed else "base"
    line(f"weights = tl.exp2(scores - {lift}[:, None])")
    line("at = places[:, None] * (tiles * BLOCK_N) + column")
    if way.packed:
        split_weights(kernel, way)
    for half in way.halves if way.packed else ("whole",):
        pointer = f"weights_{half}_ptr"
        kernel.results[pointer] = between.weights(half)
        text = f"weights_{half}" if way.packed else f"weights.to({pointer}.dtype.element_ty)"
        line(f"tl.store({pointer} + at, {text})")
    kernel.results |= {"maxima_ptr": between.maxima, "sums_ptr": between.partial_sums}
    rows = f"{problem.batch} * blocks * BLOCK_M"
    line(f"tl.store(maxima_ptr + tile * ({rows}) + places, top)")
    line(f"tl.store(sums_ptr + tile * ({rows}) + places, tl.sum(weights, axis=1))")
    kernel.add_pointers(reader.pointers)


def write_sums(problem: Problem, kernel: Kernel, way: Way, between: Wide) -> None:
    """The second kernel."""
    body, line = kernel.body, kernel.body.line
    cast = ".to(tl.int64)" if problem.wide_offsets else ""
    line(f"blocks = tl.cdiv({problem.queries}, BLOCK_M)")
    line(f"tiles = tl.cdiv({problem.keys}, TILE_N)")
    line(f"column_blocks = tl.cdiv({problem.width}, BLOCK_N)")
    line("pid = tl.program_id(0)")
    line(f"batch = (pid // (blocks * column_blocks)){cast}")
    line("block = pid % blocks")
    line("step = pid // blocks % column_blocks")
    line(f"query = (block * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]){cast}")
    line("width = step * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
    line("places = (batch * blocks + block).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)")
    reach = problem.keys.code()
    if _skips(problem):
        line(f"reach = tl.minimum((block + 1) * BLOCK_M, {reach})")
        reach = "reach"
    line(f"rows = {problem.batch} * blocks * BLOCK_M")
    line('most = tl.full((BLOCK_M,), -float("inf"), tl.float32)')
    _over_tiles(kernel, reach, ["most = tl.maximum(most, tl.max(tops, axis=0))"])
    line('base = tl.where(most == -float("inf"), 0.0, most)')
    line("norm = tl.zeros((BLOCK_M,), tl.float32)")
    sums = f"tl.load(sums_ptr + {OF_TILES}, mask={_within(reach)}, other=0.0)"
    _over_tiles(kernel, reach, [f"norm += tl.sum({sums} * tl.exp2(tops - base[None, :]), axis=0)"])
    kernel.operands |= {"maxima_ptr": between.maxima, "sums_ptr": between.partial_sums}
    if way.packed:
        line("q_at = ((batch * blocks + block) * BLOCK_M).to(tl.int32)")
        line("k_at = (batch * tiles * TILE_N).to(tl.int32)")
        line("key_blocks = tiles * (TILE_N // BLOCK_K)")
    line("total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
    line("ahead = tl.load(maxima_ptr + places)")
    line(f"for k_start in range(0, {reach}, BLOCK_K):")
    body.indent += 1
    line("factor = tl.exp2(ahead - base)")
    line(f"tile_n = tl.minimum(k_start + BLOCK_K, {reach} - 1) // TILE_N")
    line("ahead = tl.load(maxima_ptr + tile_n * rows + places)  # on its way during the product")
    _load_weights(kernel, way, between)
    if not way.packed:
        line(f"key = (k_start + tl.arange(0, BLOCK_K)[:, None]){cast}")
    load(problem, kernel, way, V, "k_at + k_start", "step * BLOCK_N", problem.v)
    factor = "factor[:, None]"
    if way.packed:
        kernel.operands["v_scales_ptr"] = scales_name(problem, "v")
        line("tile = (batch * key_blocks + k_start // BLOCK_K) * column_blocks + step")
        line("factor = factor * tl.load(v_scales_ptr + tile)")
    _accumulate(kernel, way, "total", ("weights", "v"), turned=False, factor=factor)
    body.indent -= 1
    norm = write_sink(problem, kernel, "norm[:, None]", "most[:, None]", way.packed)
    line(f"result = total / {norm}")
    if problem.mask is not None and not problem.lonely and problem.sink is None:
        line("result = tl.where(norm[:, None] == 0, 0.0, result)")  # a NaN stays
    store_result(problem, kernel, "result")


def _over_tiles(kernel: Kernel, reach: str, lines: list[str]) -> None:
    """Go over the maxima of all tiles, many at a time: one after the other, each load would be waited for."""
    line = kernel.body.line
    line(f"for first in range(0, tl.cdiv({reach}, TILE_N), {AT_ONCE}):")
    kernel.body.indent += 1
    line(f"tile_m = first + tl.arange(0, {AT_ONCE})[:, None]")
    line(f'tops = tl.load(maxima_ptr + {OF_TILES}, mask={_within(reach)}, other=-float("inf"))')
    for text in lines:
        line(text)
    kernel.body.indent -= 1


def _within(reach: str) -> str:
    return f"tile_m * TILE_N < {reach}"


def _skips(problem: Problem) -> bool:
    """Whether tiles that no row sees may be left out: with a finite score they have a weight."""
    return problem.causal and problem.fill is None


def _load_weights(kernel: Kernel, way: Way, between: Wide) -> None:
    line = kernel.body.line
    for half in way.halves if way.packed else ("whole",):
        name = f"weights_{half}" if way.packed else "weights"
        if way.packed and way.descriptors:
            shape = f"[{kernel.meta['BLOCK_M']}, {kernel.meta['BLOCK_K']}]"
            given = f"TensorDescriptor.from_tensor({between.weights(half)}, {shape})"
            kernel.operands[f"weights_{half}_tiles"] = given
            line(f"{name} = weights_{half}_tiles.load([q_at, k_start])")
        else:
            kernel.operands[f"weights_{half}_ptr"] = between.weights(half)
            at = "places[:, None] * (tiles * TILE_N) + k_start + tl.arange(0, BLOCK_K)[None, :]"
            line(f"{name} = tl.load(weights_{half}_ptr + {at})")


def _accumulate(
    kernel: Kernel, way: Way, total: str, sides: tuple[str, str], turned: bool, factor: str
) -> None:
    """A block's product onto the running sum: in fp32 outside the tensor core, which truncates."""
    line, (left, right) = kernel.body.line, sides
    if way.grade == "half" and not factor:
        line(f"{total} = tl.dot({left}, {right}{'.T' if turned else ''}, {total})")
        return
    for text in products(way, "part", left, right, turned):
        line(text)
    line(f"{total} += part * {factor}" if factor else f"{total} += part")
