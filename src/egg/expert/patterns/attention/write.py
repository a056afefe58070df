"""Attention with what stands around it: views of the operands, the mask, and where heads go back together.

Heads up to 128 wide take one kernel (:mod:`.triton.flash`), wider ones two
(:mod:`.triton.wide`). 16-bit operands are read as they lie. fp32 is packed into fp16
halves first, since every block of keys and values is read by all blocks of queries; where there are few of
those, it is read as it lies, with three TF32 products. Few queries leave the tensor cores idle and the memory
busy: then keys and values come in wide blocks with several on their way, and are shared out over programs
where there are too few of them (:mod:`.triton.parts`).

Settings: ``grade`` (``fp32``, ``tf32``, ``tf32x3``, ``ieee``), ``mode`` (``flash`` or ``wide``), ``packing``,
``descriptors``, ``bounds`` (look for empty blocks of a mask), and the constants ``BLOCK_M``, ``BLOCK_N``,
``NUM_WARPS``, ``NUM_STAGES``, ``SPLIT`` (parts of the keys); of two kernels also ``BLOCK_K``, ``BLOCK_W``
(columns of the second).
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs, allocation, size_names
from egg.expert.emit.names import read_by
from egg.expert.emit.words import PRODUCT
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Target, Unfit, Use, spelled
from egg.expert.patterns.attention.problem import Problem
from egg.expert.patterns.attention.triton.flash import Flash, bounds_kernel
from egg.expert.patterns.attention.triton.operands import Way, pack
from egg.expert.patterns.attention.triton.parts import MOST_PARTS, names, rows_of, write_joining
from egg.expert.patterns.attention.triton.wide import Wide, write_scores, write_sums
from egg.expert.patterns.product.rules import by_warp_group

WIDEST_HEAD = 128
"""That one kernel holds."""
NARROW_HEAD = 64
"""Up to here a program of 16-bit operands has 128 queries. With wider heads and a mask two or three programs
of 64 hide each other's waiting better: 0.38 ms against 0.45 for 32 heads of 96 with a window, on an H200."""
MANY_QUERIES = 128
"""From here on keys and values are read often enough to be packed first."""
PROGRAMS_EACH = 2
"""Programs of few queries that a multiprocessor should have, for enough bytes to be on their way."""
LONE_STAGES = 6
"""Of the product with the values where a multiprocessor has one program: nothing else hides its waiting, and
all of the shared memory is there for it."""
LEAST_KEYS = 256
"""Of a part: below that, joining costs more than is won."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group as kernels and the lines that call them."""
    return _Writer(graph, group, target).part()


class _Writer:
    def __init__(self, graph: Graph, group: Group, target: Target) -> None:
        self.graph, self.group, self.target = graph, group, target
        self.problem = Problem.of(graph, group)
        self.knobs = Knobs(group.name, target.settings)
        self.way = self._way()
        self.device = f"{spelled(graph, group.reads(graph)[0])}.device"
        self.code = Code()
        self.split = ""
        """The constant that says in how many parts the keys are worked on; none where one is enough."""
        self._checked()

    def _checked(self) -> None:
        if lost := [name for name in self.group.writes(self.graph) if name not in self.problem.places()]:
            raise Unfit(f"{lost} are needed elsewhere, but stand before the attention")

    def _way(self) -> Way:
        problem, settings = self.problem, self.target.settings
        hopper = by_warp_group(self.target.gpu)
        if problem.q.dtype != "float32":
            return Way("half", False)
        wide = self._mode() == "wide"
        packing = settings.get("packing", wide or problem.queries.value > MANY_QUERIES)
        grade = str(settings.get("grade", "fp32"))
        grade = {"fp32": "fp32" if packing else "tf32x3", "tf32": "tf32" if packing else "tf32x3"}.get(
            grade, grade
        )
        if grade not in ("fp32", "tf32", "tf32x3", "ieee"):
            raise Unfit(f"no grade of attention: {grade}")
        # Coordinates of the copy engine have 32 bits, and so have the places of packed rows.
        rows = problem.batch.value * (max(problem.queries.value, problem.keys.value) + 256)
        return Way(grade, bool(settings.get("descriptors", hopper)) and rows < 2**31)

    def _mode(self) -> str:
        problem = self.problem
        wide = max(problem.depth.value, problem.width.value) > WIDEST_HEAD
        return str(self.target.settings.get("mode", "wide" if wide else "flash"))

    def part(self) -> Part:
        if self._mode() == "wide":
            self._wide()
        else:
            self._flash()
        outputs = [allocation(self.graph.value(name), self.device) for name in self.group.writes(self.graph)]
        self.code.call[:0] = outputs
        sizes = sorted(read_by(self.code.call) & size_names(self.graph))
        counts = self.problem.counts
        return self.code.part(self.knobs.constants(), self._summary(), sizes=sizes, counts=counts)

    # -- one kernel --------------------------------------------------------------------------------

    def _flash(self) -> None:
        problem, way, name = self.problem, self.way, self.group.name
        depth = max(_power(problem.depth.value), _power(problem.width.value))
        m, n = self._tile(depth)
        block_m = self.knobs.constant("BLOCK_M", m, (64, 128) if m > 64 else ())
        choices = (64, 128) if depth <= 32 or self._few else (32, 64)
        block_n = self.knobs.constant("BLOCK_N", n, choices if self._few or (m > 64 and depth <= 64) else ())
        warps = self.knobs.constant("NUM_WARPS", 8 if m > 64 else 4)
        if self._few:
            stages = self.knobs.constant("NUM_STAGES", 3, (2, 3, 4))
        else:
            choices = (2, 3) if depth <= NARROW_HEAD or self._wide_half else ()
            stages = self.knobs.constant("NUM_STAGES", 3 if self._wide_half else 2, choices)
        self.code.call.append(f"{name}_depth = max(16, triton.next_power_of_2({problem.depth}))")
        self.code.call.append(f"{name}_width = max(16, triton.next_power_of_2({problem.width}))")
        meta = {"BLOCK_M": block_m, "BLOCK_N": block_n}
        meta |= {"BLOCK_D": f"{name}_depth", "BLOCK_V": f"{name}_width"}
        if way.packed:
            self._pack("q", (block_m, meta["BLOCK_D"]), meta["BLOCK_D"])
            self._pack("k", (block_n, meta["BLOCK_D"]), meta["BLOCK_D"], by_tile=True)
            self._pack("v", (block_n, meta["BLOCK_V"]), meta["BLOCK_V"], by_tile=True)
        bounds = self._bounds(block_m, block_n)
        self.split = split = self._split(m)
        if split:
            meta["SPLIT"] = split
            self._allocate_parts(split)
        kernel = self._kernel(f"flash_{name}", self._doc(), meta)
        Flash(problem, kernel, way, bounds, bool(split)).write()
        blocks = f"{problem.batch} * triton.cdiv({problem.queries}, {block_m})"
        grid = f"({blocks}, {split})" if split else f"({blocks},)"
        self._launch(kernel, grid, {"num_warps": warps, "num_stages": stages})
        if split:
            self._join(meta)

    @property
    def _few(self) -> bool:
        """Whether there are so few queries that memory decides."""
        return self.way.grade == "half" and self.problem.few

    @property
    def _wide_half(self) -> bool:
        """Whether heads of 16-bit operands are so wide that registers decide."""
        widest = max(_power(self.problem.depth.value), _power(self.problem.width.value))
        return self.way.grade == "half" and widest > NARROW_HEAD

    def _split(self, m: int) -> str:
        """The constant that says in how many parts the keys are worked on; none where one is enough."""
        problem = self.problem
        programs = problem.batch.value * -(-problem.queries.value // m)
        parts = min(PROGRAMS_EACH * self.target.gpu.sms // programs, problem.keys.value // LEAST_KEYS)
        parts = min(parts, MOST_PARTS)
        parts = int(self.target.settings.get("SPLIT", parts if self._few else 1))
        if parts < 2:
            return ""
        return self.knobs.constant("SPLIT", parts, (max(2, parts // 2), parts), "parts of the keys")

    def _allocate_parts(self, split: str) -> None:
        rows, width = rows_of(self.problem), self.problem.width
        shapes = (f"({split}, {rows}, {width})", f"({split}, {rows})", f"({split}, {rows})")
        for made, shape in zip(names(self.problem), shapes, strict=True):
            self.code.call.append(f"{made} = torch.empty({shape}, device={self.device}, dtype=torch.float32)")

    def _join(self, meta: dict[str, str]) -> None:
        shares = f"triton.next_power_of_2({meta['SPLIT']})"
        kept = {"SPLIT": meta["SPLIT"], "SHARES": shares, "BLOCK_V": meta["BLOCK_V"]}
        doc = "Bring the parts of the keys to each row's largest score, and add them up."
        kernel = self._kernel(f"{self.group.name}_join", doc, kept)
        write_joining(self.problem, kernel, self.way.packed)
        self._launch(kernel, f"({rows_of(self.problem)},)", {"num_warps": "4"})

    def _tile(self, depth: int) -> tuple[int, int]:
        """Queries and keys of a step: registers hold scores and two sums, shared memory two blocks."""
        problem, way = self.problem, self.way
        plain_fp32 = way.grade in ("tf32x3", "ieee")
        short = plain_fp32 or self._wide_half
        m = min(64 if short else 128, max(16, _power(problem.queries.value)))
        widest = 32 if plain_fp32 or (way.grade == "fp32" and depth > 64) else 64
        if depth <= 32:
            widest = 128
        if self._few:
            widest = 128 if depth <= 64 else 64
        n = min(widest, max(16, _power(problem.keys.value)))
        bytes_each = 4 if plain_fp32 else 2 * (len(way.halves) if way.packed else 1)
        while m > 16 and (m + 4 * n) * depth * bytes_each > 0.9 * self.target.gpu.shared_per_block:
            m, n = (m // 2, n) if m > n else (m, max(16, n // 2))
        return m, n

    def _bounds(self, block_m: str, block_n: str) -> str | None:
        """The first and the last keys that a block of queries sees; those of a buffer are kept until it
        changes."""
        problem, name = self.problem, self.group.name
        if problem.end is not None or not problem.shared_mask or not self.target.settings.get("bounds", True):
            return None
        kernel = bounds_kernel(problem, name)
        kernel.meta = {"BLOCK_M": block_m, "BLOCK_N": block_n}
        blocks = f"triton.cdiv({problem.queries}, {block_m})"
        found, stored = f"{name}_bounds_of", problem.stored_mask
        if not self.target.settings.get("keep", True):
            stored = None
        device = self.device if stored is None else f"{spelled(self.graph, stored.name)}.device"
        lines = [f"{found} = torch.empty(({blocks}, 3), device={device}, dtype=torch.int32)"]
        lines += kernel.launch(f"({blocks},)", {"num_warps": "8"})
        if stored is None:
            self.code.add(kernel, lines)
            return found
        function = Host(self.graph, self.group).keeping("bounds", lines, kernel.doc, (found,))
        self.code.add(kernel, kept=True)
        self.code.helpers[function.name] = function.text
        self.code.functions.append(function.name)
        self.code.call.append(f"{found} = {function.call}")
        return found

    # -- two kernels -------------------------------------------------------------------------------

    def _wide(self) -> None:
        problem, way, name = self.problem, self.way, self.group.name
        few = min(problem.queries.value, problem.keys.value) < 128
        block_m = self.knobs.constant("BLOCK_M", 64 if few else 128)
        block_n = self.knobs.constant("BLOCK_N", 64 if few else 128, () if few else (64, 128))
        block_k = self.knobs.constant("BLOCK_K", 64 if way.grade in ("fp32", "tf32", "half") else 32)
        tiles = problem.batch.value * -(-problem.queries.value // 128) * -(-problem.width.value // 128)
        idle = way.grade == "half" and tiles < self.target.gpu.sms
        block_w = self.knobs.constant("BLOCK_W", 64 if idle else 128, (64, 128))
        warps = self.knobs.constant("NUM_WARPS", 8)
        stages = self.knobs.constant("NUM_STAGES", 3, (2, 3))
        deep = self.knobs.constant("SUMS_NUM_STAGES", LONE_STAGES, (4, LONE_STAGES)) if idle else stages
        if way.packed:
            for side, size, block in (("qk", problem.depth, block_k), ("v", problem.width, block_w)):
                self.code.call.append(f"{name}_{side}_padded = triton.cdiv({size}, {block}) * {block}")
            self._pack("q", (block_m, block_k), f"{name}_qk_padded")
            self._pack("k", (block_n, block_k), f"{name}_qk_padded")
            self._pack("v", (block_k, block_w), f"{name}_v_padded", by_tile=True, whole=block_n)
        between = Wide(name)
        rows = f"{problem.batch} * triton.cdiv({problem.queries}, {block_m}) * {block_m}"
        tiles = f"triton.cdiv({problem.keys}, {block_n})"
        self.code.call.append(f"{name}_rows, {name}_tiles = {rows}, {tiles}")
        dtype = "float16" if way.packed else problem.q.dtype
        for half in way.halves if way.packed else ("whole",):
            shape = f"({name}_rows, {name}_tiles * {block_n})"
            self.code.call.append(
                f"{between.weights(half)} = torch.empty({shape}, device={self.device}, dtype=torch.{dtype})"
            )
        for made in (between.maxima, between.partial_sums):
            shape = f"({name}_tiles, {name}_rows)"
            self.code.call.append(f"{made} = torch.empty({shape}, device={self.device}, dtype=torch.float32)")
        options = {"num_warps": warps, "num_stages": stages}
        meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
        first = self._kernel(
            f"{name}_scores", "Scores of a tile as weights, with each row's maximum and sum.", meta
        )
        write_scores(problem, first, way, between)
        blocks = f"{problem.batch} * triton.cdiv({problem.queries}, {block_m})"
        self._launch(first, f"({blocks} * {tiles},)", options)
        meta = {"BLOCK_M": block_m, "BLOCK_N": block_w, "BLOCK_K": block_k, "TILE_N": block_n}
        second = self._kernel(
            f"{name}_products", "Weights times values, every tile brought to its row's maximum.", meta
        )
        write_sums(problem, second, way, between)
        grid = f"({blocks} * triton.cdiv({problem.width}, {block_w}),)"
        self._launch(second, grid, {"num_warps": warps, "num_stages": deep})

    # -- shared ------------------------------------------------------------------------------------

    def _pack(
        self, side: str, blocks: tuple[str, str], padded: str, by_tile: bool = False, whole: str = ""
    ) -> None:
        value = {"q": self.problem.q, "k": self.problem.k, "v": self.problem.v}[side]
        packing = pack(
            self.problem, self.way, side, value, blocks, self.device, padded, whole or blocks[0], by_tile
        )
        self.code.uses.add(Use.PACKING)
        self.code.add(packing.kernel, packing.call)

    def _kernel(self, name: str, doc: str, meta: dict[str, str]) -> Kernel:
        problem = self.problem
        kernel = Kernel(name, doc, self.graph, PRODUCT, meta=meta)
        sizes = (problem.queries, problem.keys, problem.depth, problem.width)
        kernel.fixed = frozenset(s.name for size in sizes for s in size.factors)
        return kernel

    def _launch(self, kernel: Kernel, grid: str, options: dict[str, str]) -> None:
        if "score_scale" in kernel.reads():
            kernel.operands["score_scale"] = self.problem.scale()
        self.code.launch(kernel, grid, options)

    def _doc(self) -> str:
        problem = self.problem
        masked = " causal" if problem.causal else " masked" if problem.mask is not None else ""
        how = {
            "fp32": "fp16 halves of fp32 operands, three products each",
            "tf32": "fp16 operands under powers of two",
            "half": "16-bit operands, fp32 sums",
        }.get(self.way.grade, f"{self.way.grade} products")
        return f"A block of queries of{masked} attention over all keys, by online softmax; {how}."

    def _summary(self) -> str:
        if self._mode() == "wide":
            return "attention of wide heads: scores with softmax statistics, then the product with the values"
        if self.split:
            return "attention of few queries: parts of the keys side by side, then joined"
        return "attention in one kernel: scores never reach memory"


def _power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
