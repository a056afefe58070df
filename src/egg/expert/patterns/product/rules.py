"""How a product is best computed on a GPU: which units, which tiles, how many parts of the summed dimension.

Every way that meets the asked accuracy is priced with a rough model (units, memory, launches, how evenly the
tiles fill the multiprocessors), and the cheapest one is taken. The rates are those seen on an H200 for Triton
kernels, scaled by the data sheet to other GPUs; they order ways, they do not predict times to the percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from egg.expert.graph import BYTES, HALF, Value
from egg.expert.parts import Setting, Target, Unfit
from egg.expert.patterns.product.batches import TINY_TILES, small, small_tile, tiny
from egg.expert.patterns.product.problem import Problem, Span
from egg.expert.patterns.product.tile_loads import Buffers, buffers, by_number, fp32_loads
from egg.expert.patterns.product.words import shared_words
from egg.expert.sizes import ONE
from egg.hardware.gpus import Gpu, reference

NARROW = 8
"""Rows or columns up to which no tensor core is used: the product is one pass over the larger operand."""
NARROW_COMPUTED, NARROW_ACROSS = 2, 4
"""The same for rows of a 16-bit product whose larger operand is computed on the way: on ordinary units eight
rows of an int8 weight of 4096 x 14336 took 128 us on an H200, whose bytes take 15. And for one that lies
across the sum: eight rows of a weight of 4096 x 11008 took 88 us, the library 30."""
FULL_ROW = 512
"""Columns of a whole row that one tile may hold; half of that where two accumulators live together."""
MOST_WARPS = 8
MOST_KEPT = 16
"""Part of the GPU's memory that the packed form of one weight may take for good."""
LAUNCH = 4e-6
STEP = 0.3e-6
"""Seconds that one step along the summed dimension takes at least, its loads running ahead."""
COMPUTED_ELEMENT = 0.02e-6
"""Seconds that a step takes longer for each element of an operand that a thread computes on the way: it
passes through registers, and little runs ahead."""
WORD_SHARE = 0.4
"""Of that, where elements share words: loads and addresses are those of a word. An estimate."""
HIDING_STEPS = 4
"""Steps along the summed dimension from which on a tile's loads hide behind its arithmetic."""
TRANSPOSING = 2.5
"""How much longer TF32 takes where an operand's summed dimension is not the contiguous one in memory."""


@dataclass(frozen=True)
class Tiles:
    m: int
    n: int
    k: int
    warps: int
    stages: int
    split: int = 1

    def room(self, per_element: int) -> int:
        """Bytes of shared memory: operands of all stages, and the result on its way to memory."""
        return (self.m + self.n) * self.k * per_element * self.stages + 4 * self.m * self.n


@dataclass(frozen=True)
class Way:
    """One way to compute a product, with its price."""

    mode: str
    """``packed``: operands are made ready by kernels of their own; ``direct``: read where they lie;
    ``vector``: no tensor cores, one pass over the larger operand."""
    grade: str
    tiles: Tiles
    seconds: float = 0.0
    walks: bool = False
    """Few programs walk over all tiles (where a tile is little work and much to store), if asked to."""


PACKED = {
    "fp32": ((128, 128, 64, 8, 3), (128, 64, 64, 4, 3), (64, 128, 64, 4, 3), (64, 64, 64, 4, 3)),
    "tf32": ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 64, 64, 4, 4)),
}
"""Rows, columns, summed dimension, warps and stages of tiles worth trying, by grade."""
OF_WORDS = ((16, 128, 64, 4, 3), (16, 256, 64, 8, 3), (32, 128, 64, 4, 3), (64, 128, 64, 8, 3))
"""The same where elements share words: a row of such a tile is short in memory, so tiles are wide."""
DIRECT = {
    "tf32x3": (
        (128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3), (64, 64, 32, 4, 3),
        (32, 64, 32, 4, 3), (16, 64, 32, 4, 4), (64, 32, 32, 4, 3), (64, 16, 32, 4, 4), (32, 32, 32, 4, 3),
    ),
    "fp32": ((128, 128, 64, 8, 3), (128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3)),
    "ieee": ((64, 64, 16, 4, 3), (32, 64, 16, 4, 3), (32, 32, 16, 4, 3), (16, 64, 32, 4, 3)),
    "half": (
        (128, 256, 64, 8, 4), (128, 128, 64, 4, 3), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4), (32, 64, 64, 4, 4), (16, 64, 128, 4, 4),
        (64, 32, 64, 4, 4), (64, 16, 128, 4, 4), (32, 32, 64, 4, 4),
    ),
    "int8": (
        (128, 256, 128, 8, 3), (128, 128, 128, 8, 4), (128, 128, 128, 4, 3), (128, 64, 128, 4, 4),
        (64, 128, 128, 4, 4), (64, 64, 128, 4, 4), (32, 64, 128, 4, 4), (16, 64, 256, 4, 4),
        (64, 32, 128, 4, 4), (64, 16, 256, 4, 4), (32, 32, 128, 4, 4),
    ),
}  # fmt: skip
DIRECT["tf32"] = DIRECT["tf32x3"]
CROWDED = (128, 128, 64, 8, 3)
"""For 16-bit products with a tail that needs registers: with more of them for a thread, none spill."""
SPLITS = (1, 2, 4, 8, 16, 32, 64)
LEAST_STEPS = 8
"""Along the summed dimension that a part must have left."""


@dataclass(frozen=True)
class Wants:
    """What the tail asks of a tile."""

    whole_rows: bool = False
    least_columns: int = 1
    may_split: bool = True
    may_walk: bool = False
    ready: bool = False
    """Price the product as if nothing stood before it."""
    crowded: bool = False
    """Values of the tail live beside the accumulators."""


def kept(problem: Problem, target: Target, operand: Value) -> Value | None:
    """The weight behind an operand whose packed form is kept between calls; ``None`` where none is."""
    fits = 4 * operand.elements.value <= target.gpu.memory_bytes / MOST_KEPT
    return problem.held(operand) if fits and target.settings.get("keep", True) else None


def grade_of(problem: Problem, target: Target) -> str:
    """The accuracy that is asked for: by setting, else that of the operands."""
    asked = target.settings.get("grade")
    if problem.whole_numbers:
        return "int8"
    if problem.left.dtype in ("float16", "bfloat16"):
        return "half"
    return "fp32" if asked in (None, "half") else str(asked)


def choose(problem: Problem, target: Target, wants: Wants) -> Way:
    """The cheapest way at the asked grade, with what the settings fix."""
    grade, settings = grade_of(problem, target), target.settings
    mode = settings.get("mode")
    whole = "packing" not in settings and small(problem, target.gpu, grade)
    if mode == "vector" or (mode is None and _narrow(problem) and not whole):
        return Way("vector", grade, stream(problem, target.gpu, False))
    if ONE in (problem.rows, problem.columns):
        raise Unfit("a product with a vector, by tiles")
    ways = list(_small_way(problem, target, wants) if whole else _ways(problem, target, grade, wants))
    packing = settings.get("packing")
    if packing is not None:
        ways = [way for way in ways if (way.mode == "packed") == bool(packing)]
    if "walk" in settings:
        ways = [way for way in ways if way.walks == bool(settings["walk"])] or ways
    if "SPLIT_K" in settings:
        ways = [way for way in ways if way.tiles.split == settings["SPLIT_K"]] or [
            replace(way, tiles=replace(way.tiles, split=int(settings["SPLIT_K"])), walks=False)
            for way in ways
        ]
    if not ways:
        raise Unfit("no tile of the product holds what its tail needs")
    best = min(ways, key=lambda way: (way.seconds, _covered(problem, way.tiles)))
    return replace(best, tiles=_as_set(best.tiles, settings))


def _narrow(problem: Problem) -> bool:
    """Whether a product has so few rows, or columns, that it is a pass over the larger operand."""
    rows, columns = problem.rows.value, problem.columns.value
    if problem.whole_numbers:
        return False
    weighed = problem.batch == ONE and problem.right.dtype in HALF and problem.computes(problem.right)
    if weighed and rows < columns:
        return rows <= NARROW_COMPUTED
    larger = problem.right if rows < columns else problem.left
    across = larger.stride[-2 if rows < columns else -1] != ONE
    if across and problem.batch == ONE and larger.dtype in HALF:
        return min(rows, columns) <= NARROW_ACROSS
    return min(rows, columns) <= NARROW


def _as_set(tiles: Tiles, settings: Mapping[str, Setting]) -> Tiles:
    """With what the settings say of it."""
    names = {"m": "BLOCK_M", "n": "BLOCK_N", "k": "BLOCK_K", "warps": "NUM_WARPS", "stages": "NUM_STAGES"}
    return replace(tiles, **{field: int(settings[name]) for field, name in names.items() if name in settings})


def _small_way(problem: Problem, target: Target, wants: Wants) -> Iterator[Way]:
    """One tile for each product of a large batch."""
    read = Buffers() if wants.ready else buffers(problem)
    m, n, k, warps, stages = small_tile(problem)
    n = max(n, wants.least_columns)
    room = target.gpu.shared_per_block // BYTES[problem.left.dtype] // 2
    while k > 16 and read.elements(m, n, k, stages) > room:
        k //= 2
    if read.elements(m, n, k, stages) <= room:
        yield Way("direct", "tf32x3", Tiles(m, n, k, warps, stages))


def _ways(problem: Problem, target: Target, grade: str, wants: Wants) -> Iterable[Way]:
    gpu = target.gpu
    packed = PACKED.get(grade, ()) if gpu.vendor == "nvidia" or grade == "fp32" else ()
    if not by_warp_group(gpu):  # operands pass through registers, so fewer of them at a time
        packed = tuple((m, n, 32, warps, stages) for m, n, _, warps, stages in packed)
    halves = 2 if grade == "fp32" else 1
    fresh = [operand for operand in (problem.left, problem.right) if kept(problem, target, operand) is None]
    for tiles in _fitting(packed, problem, wants, halves, gpu.shared_per_block // (2 * halves), Buffers()):
        if problem.depth.value <= tiles.k:  # nothing to run ahead of: room for two programs on a
            tiles = replace(tiles, stages=1)  # multiprocessor, of which one loads while the other stores
        short = tiles.stages == 1
        yield Way("packed", grade, tiles, _seconds(problem, gpu, grade, tiles, fresh, overlapped=short))
        if tiles.split > 1 or problem.batch != ONE or not wants.may_walk:
            continue
        two = replace(tiles, stages=2)
        if target.settings.get("walk") and two.room(2 * halves) <= gpu.shared_per_block - 1024:
            seconds = _seconds(problem, gpu, grade, two, fresh, overlapped=True)
            yield Way("packed", grade, two, seconds, walks=True)
    direct = {"fp32": ("tf32x3" if gpu.vendor == "nvidia" else "ieee")}.get(grade, grade)
    if direct not in DIRECT:
        raise Unfit(f"no product of grade {grade}")
    read = Buffers() if wants.ready else buffers(problem)
    if grade == "fp32" and by_warp_group(gpu):  # those take fp16 tiles in any order from shared memory
        longer = fp32_loads(problem)
        for tiles in _fitting(DIRECT["fp32"], problem, wants, 2, gpu.shared_per_block // 4, read):
            spans = _spans(problem, tiles)
            seconds = _seconds(problem, gpu, "fp32 unpacked", tiles, None, longer, spans=spans)
            yield Way("direct", "fp32", tiles, seconds)
    width = BYTES[problem.left.dtype]
    crowded = wants.crowded and direct == "half"
    held = 2 if direct == "tf32x3" or crowded else 1  # split operands are in registers, or the tail's values
    turned = direct in ("tf32", "tf32x3") and not problem.depth_contiguous
    slow = direct == "half" and not wants.ready
    base = (CROWDED, *DIRECT[direct]) if crowded else DIRECT[direct]
    if tiny(problem, gpu) and direct != "ieee":
        base = (TINY_TILES,)
    if slow and shared_words(problem) is not None:
        base = (*base, *OF_WORDS)
    for tiles in _fitting(base, problem, wants, held, gpu.shared_per_block // width, read):
        rate = "tf32 unpacked" if direct == "tf32" else direct
        step = STEP + (_computed_seconds(problem, tiles, gpu) if slow else 0.0)
        spans = () if wants.ready else _spans(problem, tiles)
        slower = (TRANSPOSING if turned else 1.0) * (
            1.0 if direct in ("half", "int8") else fp32_loads(problem)
        )
        seconds = _seconds(problem, gpu, rate, tiles, None, slower, step=step, spans=spans)
        yield Way("direct", direct, tiles, seconds)


def _computed_seconds(problem: Problem, tiles: Tiles, gpu: Gpu) -> float:
    """What a step takes longer, on the average of all steps, because operands pass through registers."""
    spans = _spans(problem, tiles)
    sides = ((problem.left, tiles.m), (problem.right, tiles.n))
    elements = sum(
        size * tiles.k * _steps([span], tiles)
        for operand, size in sides
        for span in spans
        if problem.computes(operand, spans=tiles.split == 1) or loaded_by_number(problem, operand, span, gpu)
    )
    share = WORD_SHARE if elements and shared_words(problem) is not None else 1.0
    return COMPUTED_ELEMENT * share * elements / (32 * tiles.warps * _steps(spans, tiles))


def loaded_by_number(problem: Problem, operand: Value, span: Span, gpu: Gpu) -> bool:
    """Whether tiles are loaded number by number. Of a weight a copy with other rows is kept, where there is a
    copy engine to read it."""
    copied = by_warp_group(gpu) and problem.held(operand) is not None
    return not copied and by_number(problem, operand, span)


def _spans(problem: Problem, tiles: Tiles) -> tuple[Span, ...]:
    """The loops over the summed dimension."""
    return problem.spans if tiles.split == 1 else (problem.whole,)


def _steps(spans: Iterable[Span], tiles: Tiles) -> int:
    """Of one program: every span ends with a block of its own."""
    return sum(ceil(span.size.value / tiles.k / tiles.split) for span in spans)


def apart(way: Way, target: Target) -> bool:
    """Whether the small products of packed halves get a sum of their own: by setting, else where tensor cores
    work by themselves. On an H200 a product of 4096 cubed takes 0.62 ms then, and 0.69 ms without."""
    if way.mode != "packed" or way.grade != "fp32" or way.walks or way.tiles.stages == 1:
        return False
    return bool(target.settings.get("apart", by_warp_group(target.gpu)))


def by_warp_group(gpu: Gpu) -> bool:
    """Whether tensor cores read operands from shared memory, and a copy engine brings them there."""
    return gpu.arch.startswith("sm_") and int(gpu.arch.removeprefix("sm_").rstrip("a")) >= 90


def _fitting(
    base: Iterable[tuple[int, int, int, int, int]],
    problem: Problem,
    wants: Wants,
    accumulators: int,
    room: int,
    read: Buffers,
) -> Iterable[Tiles]:
    """The tiles that the tail can live with, cut down to the problem, in every number of parts.

    ``room``: elements of operands that shared memory holds, of all stages together; ``read``: how many of
    them a tile takes.
    """
    rows, columns, depth = problem.rows.value, problem.columns.value, problem.depth.value
    found: dict[Tiles, None] = {}
    least = 32 if problem.whole_numbers else 16
    may_split = wants.may_split and not problem.whole_numbers  # parts are stored and joined in fp32
    room = room * 3 // 4 if wants.whole_rows else room  # rows change their layout through shared memory, too
    for tiles in (Tiles(*sizes) for sizes in base):
        n = max(tiles.n, wants.least_columns)
        m = tiles.m
        if wants.whole_rows:
            n = max(16, power_of_two(columns))
            if n > FULL_ROW // accumulators:
                continue
        warps = tiles.warps
        while m * n * accumulators > 128 * 32 * warps and m > 16:  # 128 registers of each thread
            if m <= 64 and warps < MOST_WARPS:
                warps *= 2
            else:
                m //= 2
        k = max(least, min(tiles.k, power_of_two(depth)))
        stages = tiles.stages
        while stages > 2 and read.elements(m, n, k, stages) > room:
            stages -= 1
        while k > least and read.elements(m, n, k, stages) > room:
            k //= 2
        if read.elements(m, n, k, stages) > room:
            continue
        if m > 2 * power_of_two(rows) or (n > 2 * power_of_two(columns) and not wants.whole_rows):
            continue
        for split in SPLITS:
            if split == 1 or (may_split and depth >= split * k * LEAST_STEPS):
                found[Tiles(m, n, k, warps, stages, split)] = None
    return found


def _seconds(
    problem: Problem,
    gpu: Gpu,
    rate: str,
    tiles: Tiles,
    packed: Sequence[Value] | None,
    slower: float = 1.0,
    overlapped: bool = False,
    step: float = STEP,
    spans: Sequence[Span] = (),
) -> float:
    """A price. ``packed``: operands that are packed in every call; ``None`` where they are read as they lie.
    ``slower``: how much longer each step takes than with operands as the units want them.
    ``overlapped``: loads of a tile run while the one before is stored; else a short sum hides nothing.
    ``step``: what one along the summed dimension takes at least; ``spans``: loops over it, if not one."""
    batch, m, n = (s.value for s in (problem.batch, problem.rows, problem.columns))
    per_batch = ceil(m / tiles.m) * ceil(n / tiles.n)
    programs = batch * per_batch * tiles.split
    steps = _steps(spans or (problem.whole,), tiles)
    one = (
        2.0 * tiles.m * tiles.n * tiles.k * steps / (_rate(gpu, rate) / gpu.sms * _fill(tiles, rate)) * slower
    )
    compute = ceil(programs / gpu.sms) * one
    waiting = ceil(programs / (2 * gpu.sms)) * (steps + 3) * step
    width = BYTES[problem.left.dtype]
    elements = problem.left.elements.value + problem.right.elements.value
    written = batch * m * n * width
    memory = (elements * width + written) / gpu.bandwidth
    extra = LAUNCH
    if packed is not None:
        each = 4 if rate == "fp32" else 2
        memory = (elements * each + written) / gpu.bandwidth
        fresh = sum(operand.elements.value for operand in packed)
        extra += len(packed) * LAUNCH + fresh * (width + each) / (0.8 * gpu.bandwidth)
    if tiles.split > 1:
        extra += LAUNCH + 8.0 * tiles.split * batch * m * n / gpu.bandwidth
    if steps < HIDING_STEPS and not overlapped:
        return compute + waiting + memory / 0.85 + extra
    return max(compute, waiting, memory / 0.85) + extra


def _covered(problem: Problem, tiles: Tiles) -> int:
    """Elements of a result's tiles, with what lies beyond its rows and columns: between ways that memory
    makes equal, the one that computes less of that."""
    rows, columns = problem.rows.value, problem.columns.value
    return ceil(rows / tiles.m) * tiles.m * ceil(columns / tiles.n) * tiles.n


def _rate(gpu: Gpu, rate: str) -> float:
    """Operations per second of the product itself with the best tile."""
    known = reference()
    ordinary = known.vector["fp32"]
    if rate == "int8":
        seen = known.attained["product tiles, half"]
        return seen * gpu.tensor.get("int8", ordinary) / known.tensor["fp16"]
    seen = known.attained[f"product tiles, {rate}"]
    if rate == "ieee":
        return seen * gpu.vector.get("fp32", ordinary) / ordinary
    unit = "tf32" if rate in ("tf32x3", "tf32 unpacked") else "fp16"
    return seen * gpu.tensor.get(unit, gpu.vector.get("fp32", ordinary)) / known.tensor[unit]


def _fill(tiles: Tiles, rate: str) -> float:
    """How well a tile feeds the tensor cores: operations per operand byte, and the instructions it allows."""
    balance = tiles.m * tiles.n / (tiles.m + tiles.n)
    by_warp = 0.4 if max(tiles.m, tiles.n) < 64 else 1.0
    fed = 0.2 + balance / 100 if rate in ("half", "int8") else 0.03 + balance / 66
    return min(1.0, fed) * by_warp


def stream(problem: Problem, gpu: Gpu, along: bool) -> Tiles:
    """One pass over the larger operand: ``m`` of its rows and ``k`` of the summed dimension at a time.

    ``along``: its rows, not the summed dimension, are what is contiguous; then a tile has many of them.
    """
    short = power_of_two(min(problem.rows.value, problem.columns.value))
    long, depth = max(problem.rows.value, problem.columns.value), problem.depth.value
    held = 4096 if short == 1 else 16384
    k = min(32 if along else 1024 if short == 1 else 128, max(4, power_of_two(depth)))
    rows = max(1, min(held // (k * short), power_of_two(long), 128))
    programs = problem.batch.value * ceil(long / rows)
    split = 1
    while programs * split < 2 * gpu.sms and depth >= 2 * split * k * 4 and split < 64:
        split *= 2
    return Tiles(rows, short, k, 4 if short == 1 else 8, 3, split)


def power_of_two(value: int) -> int:
    """The next one from ``value`` on."""
    return 1 << max(0, value - 1).bit_length()
