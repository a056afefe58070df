"""Attention in one kernel: scores never leave the chip.

A program has a block of queries and goes over keys and values block by block, rescaling its sum whenever a
row's maximum grows. What is certainly seen by all of its rows is read without a mask; then come the blocks on
the edge; blocks that none of its rows sees are not computed. For the causal triangle the two bounds follow
from the rows; where the mask compares keys with one number for all queries (how much of a cache is filled),
they follow from that. For a mask in memory that all heads share they are looked up once, block by block, by a
small kernel before, and so is the first key that is seen: a triangle in a buffer costs what a triangle costs,
a window what a window costs, and any other mask stays right.

Few queries make few programs. Then each has a part of the keys alone, and what the parts found is put
together by a second kernel (:mod:`.parts`).
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader
from egg.expert.emit.words import PRODUCT
from egg.expert.patterns.attention.problem import ABSORBING, LOG2_E, Problem, mask_reader, read_end, read_mask
from egg.expert.patterns.attention.triton.operands import Tile, Way, load, products, scales_name
from egg.expert.patterns.attention.triton.parts import store_part, write_quotient
from egg.expert.patterns.attention.triton.scores import LIFT, read_others, write_functions

Q, K, V = Tile("q", "BLOCK_M", "BLOCK_D"), Tile("k", "BLOCK_N", "BLOCK_D"), Tile("v", "BLOCK_N", "BLOCK_V")
FAR_BELOW = 64.0
"""Powers of two: what is that much smaller adds nothing to a sum in fp32, be it a million times."""


@dataclass(frozen=True)
class Blocks:
    """What is to be looked at in a range of keys."""

    masked: bool
    edge: bool = False
    """Whether it may reach beyond the last key."""


CLEAR, MASKED, EDGE = Blocks(False), Blocks(True), Blocks(True, edge=True)


class Flash:
    """Writes the kernel's body."""

    def __init__(
        self, problem: Problem, kernel: Kernel, way: Way, bounds: str | None, split: bool = False
    ) -> None:
        self.problem, self.kernel, self.way, self.bounds = problem, kernel, way, bounds
        self.split = split
        """Whether a program has a part of the keys alone, and leaves the end to a kernel that joins them."""
        self.reader = mask_reader(problem, kernel)

    def write(self) -> None:
        self._place()
        self._queries()
        self.others = read_others(self.problem, self.reader)
        line = self.kernel.body.line
        line("total = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)")
        line('top = tl.full((BLOCK_M,), -float("inf"), tl.float32)')
        line("sums = tl.zeros((BLOCK_M,), tl.float32)")
        clear = self._clear()
        if self.split:
            if clear:
                self._loop("low", "tl.minimum(clear, high)", CLEAR)
            self._loop("tl.maximum(clear, low)" if clear else "low", "high", EDGE)
            self._unseen(only="share == 0")
            store_part(self.problem, self.kernel)
        else:
            self._loop("0", "clear", CLEAR if clear else MASKED)
            begin = "tl.maximum(first, clear)" if self.bounds is not None else "clear"
            self._loop(begin, "reach", EDGE)
            self._unseen()
            write_quotient(self.problem, self.kernel, "sums[:, None]", "top[:, None]", self.way.packed)
        self.kernel.add_pointers(self.reader.pointers)

    def _clear(self) -> bool:
        """Whether there are blocks without a mask."""
        return self.problem.mask is None or self.bounds is not None or self.problem.end is not None

    def _place(self) -> None:
        line, problem = self.kernel.body.line, self.problem
        cast = ".to(tl.int64)" if problem.wide_offsets else ""
        line(f"blocks = tl.cdiv({problem.queries}, BLOCK_M)")
        line("pid = tl.program_id(0)")
        line(f"batch = (pid // blocks){cast}")
        line("block = blocks - 1 - pid % blocks  # late rows may see the most keys: they go first")
        line(f"query = (block * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]){cast}")
        line("width = tl.arange(0, BLOCK_V)[None, :]")
        keys = problem.keys.code()
        if self.bounds is not None:
            self.kernel.operands["bounds_ptr"] = self.bounds
            line("first = tl.load(bounds_ptr + 3 * block)")
            line("clear = tl.load(bounds_ptr + 3 * block + 1)")
            line("reach = tl.load(bounds_ptr + 3 * block + 2)")
        elif problem.causal:
            line(f"clear = tl.minimum(block * BLOCK_M, {keys}) // BLOCK_N * BLOCK_N")
            line(f"reach = tl.minimum((block + 1) * BLOCK_M, {keys})")
        elif problem.end is not None:
            end = read_end(problem, self.reader, problem.end)
            line(f"reach = tl.minimum(tl.maximum({end}, 0), {keys}).to(tl.int32)")
            line("clear = reach // BLOCK_N * BLOCK_N")
        else:
            line(f"clear: tl.constexpr = {keys} // BLOCK_N * BLOCK_N")
            line(f"reach: tl.constexpr = {keys}")
        if self.split:
            line("share = tl.program_id(1)")
            line("span = tl.cdiv(tl.cdiv(reach, BLOCK_N), SPLIT) * BLOCK_N")
            line("low = share * span")
            line("high = tl.minimum(low + span, reach)")

    def _queries(self) -> None:
        line, way = self.kernel.body.line, self.way
        if way.packed:
            line(f"key_blocks = tl.cdiv({self.problem.keys}, BLOCK_N)")
            line("q_at = ((batch * blocks + block) * BLOCK_M).to(tl.int32)")
            line("k_at = (batch * key_blocks * BLOCK_N).to(tl.int32)")
            self.kernel.operands["q_scales_ptr"] = scales_name(self.problem, "q")
            line("q_scale = tl.load(q_scales_ptr + q_at + tl.arange(0, BLOCK_M)) * score_scale")
        else:
            line("depth = tl.arange(0, BLOCK_D)[None, :]")
        load(self.problem, self.kernel, way, Q, "q_at", "0", self.problem.q)

    def _loop(self, low: str, high: str, blocks: Blocks) -> None:
        body, way, problem = self.kernel.body, self.way, self.problem
        line = body.line
        line(f"for start in range({low}, {high}, BLOCK_N):")
        body.indent += 1
        self._start()
        mask = ""
        if blocks.masked:  # asked for early, so that it comes while the scores are computed
            mask = begin_mask(problem, self.kernel, self.reader, "start + tl.arange(0, BLOCK_N)[None, :]")
        inside = not (blocks.masked or blocks.edge)
        load(problem, self.kernel, way, K, "k_at + start", "0", problem.k, inside)
        for text in products(way, "scores", "q", "k", turned=True):
            line(text)
        if way.packed:
            self.kernel.operands["k_scales_ptr"] = scales_name(problem, "k")
            line("k_scale = tl.load(k_scales_ptr + batch * key_blocks + start // BLOCK_N)")
            line("scores = scores * (q_scale * k_scale)[:, None]")
        elif not self._scaled_late:
            line("scores = scores * score_scale")
        write_functions(problem, self.kernel, self.others, way.grade == "half")
        if blocks.masked:
            write_mask(problem, self.kernel, mask, blocks.edge)
        careful = blocks.masked and problem.mask is not None and problem.fill is None
        self._weigh(careful, inside)
        body.indent -= 1

    def _unseen(self, only: str = "") -> None:
        """Keys that no query of the block sees, where masking puts a finite score in their place.

        Beside a score that is far above it they have no weight, which is the case of all but rows that see
        nothing, or next to nothing: then they are computed, too. ``only``: the part of the keys that does.
        """
        problem, line = self.problem, self.kernel.body.line
        skips = problem.causal or problem.end is not None or self.bounds is not None
        if problem.fill is None or not skips:
            return
        line("rows = block * BLOCK_M + tl.arange(0, BLOCK_M)")
        line(f"lowest = tl.min(tl.where(rows < {problem.queries}, top, 0.0), axis=0)")
        asked = f"(lowest < {problem.fill + FAR_BELOW!r})" + (f" & ({only})" if only else "")
        line(f"behind = tl.where({asked}, {problem.keys}, 0)  # rows that see nothing weigh all keys alike")
        if self.bounds is not None and not self.split:
            self._fill_loop("clear", "tl.minimum(tl.minimum(first, reach), behind)")
        self._fill_loop("tl.cdiv(reach, BLOCK_N) * BLOCK_N", "behind")

    def _fill_loop(self, low: str, high: str) -> None:
        body, problem = self.kernel.body, self.problem
        body.line(f"for start in range({low}, {high}, BLOCK_N):")
        body.indent += 1
        self._start()
        body.line("column = start + tl.arange(0, BLOCK_N)[None, :]")
        body.line(f'scores = tl.where(column < {problem.keys}, {problem.fill!r}, -float("inf"))')
        body.line("scores = scores + tl.zeros((BLOCK_M, 1), tl.float32)")
        self._weigh(careful=False, inside=False)
        body.indent -= 1

    def _start(self) -> None:
        if self.way.packed:
            self.kernel.body.line("start = tl.multiple_of(start, BLOCK_N)")
        else:
            cast = ".to(tl.int64)" if self.problem.wide_offsets else ""
            self.kernel.body.line(f"key = (start + tl.arange(0, BLOCK_N)[:, None]){cast}")

    @property
    def _scaled_late(self) -> bool:
        """Whether scores are scaled where the maximum is taken off, which is one instruction then: the
        largest is the same before, and nothing but minus infinity is put in between."""
        problem, added = self.problem, self.problem.mask is not None and self.problem.mask.dtype != "bool"
        plain = not problem.functions and problem.fill is None and not added
        return self.way.grade == "half" and plain and problem.scale_is_positive

    def _weigh(self, careful: bool, inside: bool) -> None:
        """A block's scores as weights, and its values onto the sum."""
        self._softmax(careful)
        load(self.problem, self.kernel, self.way, V, "k_at + start", "0", self.problem.v, inside)
        self._sum()
        self.kernel.body.line("top = higher")

    def _softmax(self, careful: bool) -> None:
        line = self.kernel.body.line
        scaled = " * score_scale" if self._scaled_late else ""
        line(f"higher = tl.maximum(top, tl.max(scores, axis=1){scaled})")
        if careful:
            line('base = tl.where(higher == -float("inf"), 0.0, higher)  # rows that saw nothing so far')
        base = "base" if careful else "higher"
        lift = f"({base} - {LIFT})" if self.way.packed else base
        line(f"weights = tl.exp2(scores{scaled} - {lift}[:, None])")
        line(f"shrink = tl.exp2(top - {base})")
        line("sums = sums * shrink + tl.sum(weights, axis=1)")

    def _sum(self) -> None:
        line, way = self.kernel.body.line, self.way
        if not way.packed:
            weights = "weights" if way.option else "weights.to(v.dtype)"
            line(f"total = tl.dot({weights}, v, total * shrink[:, None]{way.option})")
            return
        split_weights(self.kernel, way)
        for text in products(way, "part", "weights", "v", turned=False):
            line(text)
        self.kernel.operands["v_scales_ptr"] = scales_name(self.problem, "v")
        line("v_scale = tl.load(v_scales_ptr + batch * key_blocks + start // BLOCK_N)")
        line("total = total * shrink[:, None] + part * v_scale")


def split_weights(kernel: Kernel, way: Way) -> None:
    kernel.body.line("weights_high = weights.to(tl.float16)")
    if "low" in way.halves:
        kernel.body.line("weights_low = (weights - weights_high.to(tl.float32)).to(tl.float16)")


def begin_mask(problem: Problem, kernel: Kernel, reader: Reader, column: str) -> str:
    """The mask at the queries of a block and ``column``; nothing where there is none in memory."""
    kernel.body.line(f"column = {column}")
    reader.forget()
    return read_mask(problem, reader) if problem.mask is not None else ""


def write_mask(problem: Problem, kernel: Kernel, mask: str, edge: bool = True) -> None:
    """What does not count becomes minus infinity, or what the program puts in its place; ``mask``: what
    :func:`begin_mask` read; ``edge``: some columns may be none.

    PyTorch's attention adds minus infinity where a mask is false, so a NaN among hidden keys is not lost; a
    program that fills scores in replaces it.
    """
    line = kernel.body.line
    seen = ["(column <= query)"] if problem.causal else []
    if problem.absorbs:  # nothing is left of a score then
        line(f"scores = scores * tl.where({mask} > {ABSORBING}, 1.0, 0.0) + {mask} * {LOG2_E}")
    elif problem.mask is not None and problem.mask.dtype != "bool":
        line(f"scores = scores + {mask} * {LOG2_E}")
    elif problem.mask is not None and problem.replaces:
        seen.append(mask)
    elif problem.mask is not None:
        line(f'scores = scores + tl.where({mask}, 0.0, -float("inf"))')
    if seen and problem.fill is not None:
        line(f"scores = tl.where({' & '.join(seen)}, scores, {problem.fill!r})")
        seen = []
    if edge:
        seen.append(f"(column < {problem.keys})")
    if seen:
        line(f'scores = tl.where({" & ".join(seen)}, scores, -float("inf"))')


def bounds_kernel(problem: Problem, name: str) -> Kernel:
    """For each block of queries: the first key it sees, up to which it sees all, and behind which none."""
    doc = "For a block of queries: the first key it sees, up to which it sees all, and behind which none."
    kernel = Kernel(f"{name}_bounds", doc, problem.graph, PRODUCT)
    reader = mask_reader(problem, kernel)
    body = kernel.body
    body.line("block = tl.program_id(0)")
    body.line("query = block * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]")
    body.line(f"first = {problem.keys}")
    body.line("clear = 0")
    body.line("reach = 0")
    body.line(f"for start in range(0, {problem.keys}, BLOCK_N):")
    body.indent += 1
    body.line("column = start + tl.arange(0, BLOCK_N)[None, :]")
    text = read_mask(problem, reader)
    mask = problem.mask
    assert mask is not None
    inside = f"(query < {problem.queries}) & (column < {problem.keys})"
    alike = "" if mask.dtype == "bool" else " == 0.0"
    some = text if mask.dtype == "bool" else f'({text} != -float("inf"))'
    beyond = f"(query >= {problem.queries})"
    body.line(f"seen = tl.max(tl.max(({some} & {inside}).to(tl.int32), axis=1), axis=0)")
    body.line(f"whole = ((({text}{alike}) & {inside}) | {beyond}) & (column < {problem.keys})")
    body.line("whole = tl.min(tl.min(whole.to(tl.int32), axis=1), axis=0)")
    body.line("first = tl.where(seen > 0, tl.minimum(first, start), first)")
    body.line(f"reach = tl.where(seen > 0, tl.minimum(start + BLOCK_N, {problem.keys}), reach)")
    body.line("clear = tl.where((whole > 0) & (clear == start), start + BLOCK_N, clear)")
    body.indent -= 1
    body.line("tl.store(bounds_ptr + 3 * block, first)")
    body.line("tl.store(bounds_ptr + 3 * block + 1, clear)")
    body.line("tl.store(bounds_ptr + 3 * block + 2, reach)")
    kernel.add_pointers(reader.pointers)
    kernel.results["bounds_ptr"] = f"{name}_bounds_of"
    return kernel
