"""Which tile a group gets: by its sizes, the bytes a program keeps in flight, and the GPU's
multiprocessors.

Memory-bound kernels want three things: enough bytes on their way (each thread a few 16-byte accesses),
enough programs to fill the GPU (about four per multiprocessor), and each element read once. Whole rows in
registers give the third as long as they fit; beyond that a row passes by in blocks, twice if need be. Few
rows with a lot in each would leave most of the GPU idle, so those are split among programs and finished by
a second kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from egg.expert.graph import BYTES, gathered_row
from egg.expert.parts import Constant, Target
from egg.expert.patterns.loops.arithmetic import is_heavy
from egg.expert.patterns.loops.bags import WHOLE, bagged
from egg.expert.patterns.loops.scans import SCANNED, scanning, shared_scans
from egg.expert.patterns.loops.selection import selecting
from egg.expert.patterns.loops.statistics import FOLDED
from egg.expert.patterns.loops.stores import SECTOR, rows_side_by_side
from egg.expert.patterns.loops.work import Plan, Work
from egg.expert.sizes import ONE, Size

RESIDENT = 16384
"""Elements of a tile that still fit into registers; twice as many of a single row of a single operand."""
PER_SM = 4
"""Programs per multiprocessor that keep memory busy."""
WAVES = 2
"""With fewer programs per multiprocessor than this, rows are split where that gives more."""
LEAST_SPLIT = 4096
"""Elements of a row below which splitting it is not worth a second launch."""
MOST_SPLITS = 1024
MANY_SPLITS = 4096
"""Programs that share one very long row, so many blocks to each: a few waves of them, and the GPU hands out
the rest of the work as programs end."""
MANY_BLOCKS = 16
APART, LONG = 2**26, 2**16
"""Elements from which on applying the states of shared rows is worth a launch of its own: a batch norm of
2**27 elements applies them at 3.5 TB/s in programs that walk along their rows, and at 4.0 in a block each (an
H200). Elements of a row from which on no cache keeps it for its second pass, so that rows are shared for that
alone: programs that pass over their rows twice reach 2.3 TB/s."""
JOINED, JOINED_APART = 2048, 2**22
"""States that a program joins before it applies them, at most; elements from which on a launch of its own
joins them."""
LINE = 32
"""Elements of fp32 that fill a line of the cache."""
LONE = 8192
"""Elements of a tile whose program has a multiprocessor for itself: 16 for each thread of 16 warps."""
HEAVY = 1024
"""Elements that 8 warps compute at a time where arithmetic takes the time: four for each thread. With 32, a
focal loss takes 255 registers of a thread and one program fits into a multiprocessor; with four 52 and
four."""
FEW = 8
"""Elements that a thread can have of each of its rows; twice as many of 16-bit ones."""
SHARED_PLACE = 16
"""Elements of rows from which on many of a tile share a place that the index says."""
ONE_EACH = 128
"""Rows that four warps have, one for each thread."""
ONE_WARP = 2048
"""Elements of rows across memory that one warp has: several statistics of 17 to 32 are joined between its
lanes. Eight warps join them through shared memory: a softmax, an argmax and products of 19 channels took
454 us on an H200 for 320 MB."""
RESAMPLED = 1024
"""Elements of a resized image that a program makes, four for each thread."""
GATHERED = 4
"""Times as many elements for each thread where most come through an index: each load waits for another one,
so more of them are on their way at a time."""
WARP_BYTES = 32 * 16
"""What a warp loads at a time."""


def power_of_two(number: int) -> int:
    """The least one that is not smaller."""
    return 1 << max(number - 1, 0).bit_length()


def _below(number: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (max(number, 1).bit_length() - 1)


def plan_of(work: Work, target: Target) -> Plan:
    """The rule's plan, with what the settings say in its place."""
    plan = _ruled(work, target)
    settings = target.settings
    mode = str(settings.get("mode", plan.mode))
    free = work.anchors.splits and not work.selections
    if free and mode in ("resident", "looped", "split") and mode != plan.mode:
        plan = _in_mode(work, target, mode)
    if work.domain.kept_size != ONE and work.domain.kept_size.value > 1:
        plan = replace(plan, block_x=int(settings.get("BLOCK_X", plan.block_x)))
    if plan.mode != "resident":
        plan = replace(plan, block_r=int(settings.get("BLOCK_R", plan.block_r)))
    plan = replace(plan, warps=int(settings.get("NUM_WARPS", plan.warps)))
    if plan.mode == "split":
        plan = replace(
            plan,
            splits=int(settings.get("SPLITS", plan.splits)),
            apart=bool(settings.get("apart", plan.apart)),
        )
    if plan.block_x > 1 or plan.block_r % max(plan.lanes * plan.warps, 1):
        plan = replace(plan, lanes=0)
    return replace(
        plan,
        x_divides=_divides(work.domain.kept_size, plan.block_x),
        r_divides=_divides(
            work.domain.reduced_size,
            plan.block_r if plan.mode != "resident" else power_of_two(work.domain.reduced_size.number),
        )
        and not (plan.mode == "resident" and bool(work.domain.reduced_size.factors)),
    )


def _divides(size: Size, block: int) -> bool:
    """At every size: the plain number in it is a multiple."""
    return size.number % block == 0


def _ruled(work: Work, target: Target) -> Plan:
    if not work.anchors.splits:
        return _pointwise(work, target)
    if work.selections:
        return selecting(work, PER_SM * target.gpu.sms)
    domain, least = work.domain, WAVES * target.gpu.sms
    rows = domain.outer_size.value * domain.kept_size.value
    length = domain.reduced_size.value
    scans = bool(work.scans)
    if scans and (plan := scanning(work, target.gpu.sms)):
        return plan
    plan = _in_mode(work, target, "resident")
    if plan.block_x * plan.block_r > (_held(work) if not scans else SCANNED) or (
        work.single_pass and length > (WHOLE if plan.skips else 4096)
    ):
        plan = _in_mode(work, target, "looped")
    programs = domain.outer_size.value * -(-domain.kept_size.value // plan.block_x)
    enough = length >= LEAST_SPLIT or (length >= 256 and rows * length >= 2**20)
    twice = plan.mode == "looped" and any(work.is_full(name) for name in work.writes) and work.depth == 1
    uncached = twice and length >= LONG and rows * length >= APART
    if (programs < least or uncached) and enough and not scans:
        return _in_mode(work, target, "split")
    return plan


def _held(work: Work) -> int:
    """Elements that a program can keep."""
    domain = work.domain
    whole = domain.outer_size.value * domain.kept_size.value * domain.reduced_size.value
    operands = [n for n in work.group.reads(work.graph) if work.graph.value(n).elements.value * 2 > whole]
    return 2 * RESIDENT if len(operands) == 1 and domain.names[1] != "col" else RESIDENT


def _in_mode(work: Work, target: Target, mode: str) -> Plan:
    if mode == "split" and work.scans:
        return shared_scans(work, target.gpu.sms)
    domain = work.domain
    inner = domain.names[1] == "col"
    kept, length = domain.kept_size.value, domain.reduced_size.value
    wanted = PER_SM * target.gpu.sms
    if inner and mode == "resident" and power_of_two(length) <= (FEW if _column_width(work) > 2 else 2 * FEW):
        return _columns(work, power_of_two(length), wanted)
    if bags := bagged(work, mode, target.gpu.sms):
        return bags
    if mode == "resident":
        block_r = power_of_two(length)
        if inner and 2 * FEW < block_r <= ONE_WARP // 64 and len(work.statistics) > 1:
            return Plan("resident", min(power_of_two(kept), 64), block_r, 1)
        if inner:
            block_x = min(power_of_two(kept), max(32, _below(4096 // block_r)) if block_r <= 512 else 16, 128)
        else:
            block_x = min(power_of_two(kept), max(1, 2048 // block_r))
            while block_x > 1 and domain.outer_size.value * kept // block_x < wanted:
                block_x //= 2
            block_x = max(block_x, rows_side_by_side(work, RESIDENT // 2 // block_r))
        return Plan("resident", block_x, block_r, _warps(block_x * block_r))
    if inner and (folded := _folded(work, mode, wanted)):
        more = wanted * 8 // folded.warps  # as many threads in all as where a program has more
        return replace(folded, splits=_splits(work, folded, more)) if mode == "split" else folded
    if inner:
        block_x = min(power_of_two(kept), 64)
        block_r = min(power_of_two(length), max(2048 // block_x, 8))
        if mode == "looped":
            while block_x > 32 and domain.outer_size.value * kept // block_x < wanted:
                block_x //= 2
            if domain.outer_size.value * -(-kept // block_x) < target.gpu.sms:
                return _lone(work, block_x, target.gpu.sms)
    else:
        return _along(work, target, mode)
    plan = Plan(mode, block_x, block_r, _warps(block_x * block_r))
    return _joinable(work, plan, wanted) if mode == "split" else plan


def _joinable(work: Work, plan: Plan, wanted: int) -> Plan:
    """Rows across memory, shared by programs. Each program that applies the states of its rows joins all of
    them first: as many as there are programs, so the whole is quadratic. Few of them join within their
    registers; where much is left to apply, joining is a kernel of its own."""
    whole = work.domain.outer_size.value * work.domain.kept_size.value * work.domain.reduced_size.value
    plan = replace(plan, splits=_splits(work, plan, wanted))
    if plan.block_x * plan.splits <= JOINED or work.depth == 0:
        return plan
    if whole >= JOINED_APART:
        return replace(plan, apart=True)
    if plan.block_x > LINE:
        longer = plan.block_r * plan.block_x // LINE
        plan = replace(plan, block_x=LINE, block_r=min(longer, power_of_two(work.domain.reduced_size.value)))
        plan = replace(plan, splits=_splits(work, plan, wanted))
    return replace(plan, splits=max(2, min(plan.splits, JOINED // plan.block_x)))


def _lone(work: Work, block_x: int, sms: int) -> Plan:
    """Few rows across memory, too short to be shared (the mean over tokens of each expert's gate): nothing
    hides that a program waits for its loads, so it has many of them on their way. Narrow tiles, down to a
    sector of each line, leave work to more programs.
    """
    domain = work.domain
    outer, kept = domain.outer_size.value, domain.kept_size.value
    while block_x > SECTOR // _column_width(work) and outer * -(-kept // block_x) < sms:
        block_x //= 2
    block_r = min(power_of_two(domain.reduced_size.value), LONE // block_x)
    return Plan("looped", block_x, block_r, min(max(_below(block_x * block_r // 512), 1), 16))


def _columns(work: Work, block_r: int, wanted: int) -> Plan:
    """Rows of a few elements that lie across memory: threads have whole ones, 16 bytes of neighbours at a
    time, so that nothing is exchanged. A program has 8 KiB on their way, unless that makes too few programs
    or leaves many lanes beyond the last row. Where single elements come through an index, whose arithmetic
    takes registers, a thread has one row.

    Where short rows come through an index, whose places lie beside each other along the row, the compiler
    would deal lanes out along them: 232 us on an H200 for a mean of three rows of 32 halves, ten million of
    them. One place after the other, lanes lie along the columns.
    """
    outer, kept = work.domain.outer_size.value, work.domain.kept_size.value
    if _through_index(work, shorter=ONE_EACH) and not _through_index(work, shorter=SHARED_PLACE):
        return Plan("looped", min(power_of_two(kept), 1024), 1, 4, folded=True)
    if _through_index(work, shorter=ONE_EACH):
        return Plan("resident", min(power_of_two(kept), ONE_EACH), block_r, 4)
    width = _column_width(work)
    vector = 16 // width if kept % (16 // width) == 0 else 1
    block_x = min(power_of_two(kept), 8192 // width // block_r)
    while block_x > 128 and (
        outer * -(-kept // block_x) < wanted or -(-kept // block_x) * block_x * 8 > kept * 9
    ):
        block_x //= 2
    return Plan("resident", block_x, block_r, min(max(block_x // (32 * vector), 1), 4))


def _column_width(work: Work) -> int:
    """Bytes per element by which rows across memory are loaded."""
    return max(min(_widths(work, work.domain.kept_size.value)), 2)


def _along(work: Work, target: Target, mode: str) -> Plan:
    """Blocks of a single row.

    Where states join by an instruction or two, a thread joins the elements that it holds before it takes
    them. Those lie as far apart as all threads load at a time, 16 bytes each, however many elements that is:
    any closer, and they would be other threads', and each block would be exchanged through shared memory.

    Where arithmetic takes the time, a thread has few elements, so that there are registers for many warps.
    """
    domain, length = work.domain, work.domain.reduced_size.value
    light = work.depth > 0 and all(s.kind in (*FOLDED, "exponentials") for s in work.statistics.values())
    block_r = min(power_of_two(length), 4096 if length >= 16384 else 1024)
    warps = _warps(block_r)
    if mode == "looped" and length >= 16384 and light and not work.single_pass:
        block_r, warps = 8192, 16  # fewer rows at once: more of each is in the cache for the second pass
    elements = domain.outer_size.value * domain.kept_size.value * length
    if light and max(_widths(work, elements // 2 + 1)) <= 2:
        block_r = min(power_of_two(length), 2 * block_r)  # as many bytes on their way
    if block_r > HEAVY and work.single_pass and is_heavy(work, target):
        block_r, warps = HEAVY, 8
    plan = Plan(mode, 1, block_r, warps)
    lanes = WARP_BYTES // min(_widths(work, length))
    if block_r >= 2 * lanes * warps:
        plan = replace(plan, lanes=lanes)
    if mode != "split":
        return plan
    return replace(plan, splits=_splits(work, plan, PER_SM * target.gpu.sms), apart=elements >= APART)


def _widths(work: Work, least: int) -> list[int]:
    """Bytes per element of what is loaded or stored and has at least so many."""
    values = [work.graph.value(name) for name in {*work.group.reads(work.graph), *work.writes}]
    return [BYTES.get(v.dtype, 4) for v in values if v.elements.value >= least] or [4]


def _splits(work: Work, plan: Plan, wanted: int) -> int:
    """Programs per row, so that all of them run at once."""
    domain = work.domain
    programs = domain.outer_size.value * -(-domain.kept_size.value // plan.block_x)
    splits = power_of_two(max(1, wanted * 3 // 4 // max(programs, 1)))
    if programs == 1 and domain.reduced_size.value >= MANY_SPLITS * MANY_BLOCKS * plan.block_r:
        return MANY_SPLITS
    most = power_of_two(max(1, domain.reduced_size.value // (2 * plan.block_r)))
    return max(2, min(splits, most, MOST_SPLITS))


def _folded(work: Work, mode: str, wanted: int) -> Plan | None:
    """A tile of which every thread has whole columns, 128 bytes on their way, where that is of use.

    The compiler deals out lanes along the kept positions first, 16 bytes each where rows are aligned to that
    and one element each where they are not; so many threads as that makes, and no more, leave none to the
    other side.

    Rows that are not aligned are another matter: a warp's 128 bytes lie in two lines of the cache, and with
    32 loads of every thread on their way the lines no longer fit. There each lane has a state, joined at the
    end, and a tile is 64 positions by 32 rows: an argmax of that form reads 4.0 TB/s on an H200, a sum in
    tiles of 128 by 32 with 16 warps only 2.8.
    """
    domain = work.domain
    if not work.single_pass or any(s.kind not in FOLDED for s in work.statistics.values()):
        return None
    whole = domain.outer_size.value * domain.kept_size.value * domain.reduced_size.value
    values = [work.graph.value(name) for name in work.group.reads(work.graph)]
    width = min((BYTES.get(v.dtype, 4) for v in values if v.elements.value * 2 > whole), default=4)
    vector = 16 // width if domain.kept_size.value % (16 // width) == 0 else 1
    if vector == 1 and mode == "looped" and _many(work, 64, wanted):
        return Plan(mode, 64, min(power_of_two(domain.reduced_size.value), 32), 4)
    block_x, warps = 32 * vector * 4, 4
    least = 2 * wanted if mode == "looped" else 1
    while warps > 1 and (
        block_x >= 2 * domain.kept_size.value
        or domain.outer_size.value * domain.kept_size.value // block_x < least
    ):
        block_x, warps = block_x // 2, warps // 2
    if block_x >= 2 * domain.kept_size.value:
        return None
    block_r = min(power_of_two(domain.reduced_size.value), 32 if vector == 1 else 8)
    return Plan(mode, block_x, block_r, warps, folded=True)


def _many(work: Work, block_x: int, wanted: int) -> bool:
    """Whether tiles so wide still make as many programs as are wanted."""
    return work.domain.outer_size.value * (work.domain.kept_size.value // block_x) >= wanted


def _warps(elements: int) -> int:
    """About 16 elements per thread, more where the tile is large."""
    return min(max(_below(elements // 512), 1), 16 if elements > 8192 else 8)


def _pointwise(work: Work, target: Target) -> Plan:
    """Two 16-byte accesses per thread and operand."""
    domain = work.domain
    names = {*work.group.reads(work.graph), *work.writes}
    large = [
        n
        for n in names
        if work.graph.value(n).elements.value * 8
        >= domain.outer_size.value * domain.kept_size.value * domain.reduced_size.value
    ]
    width = min((BYTES.get(work.graph.value(n).dtype, 4) for n in large), default=4)
    elements = 4096 // max(min(width, 4), 1)
    length, kept = domain.reduced_size.value, domain.kept_size.value
    if any(node.op == "resample" for node in work.group.nodes):
        return _neighbouring(length, kept)
    if domain.square:
        wide = width <= 2 and min(length, kept) >= 64  # 128 bytes on either side
        return Plan("pointwise", 64, 64, 8) if wide else Plan("pointwise", 32, 32, 4)
    if _through_index(work) and length * kept >= GATHERED * elements * 2 * PER_SM * target.gpu.sms:
        elements *= GATHERED
    block_r = min(power_of_two(length), elements)
    block_x = 1 if kept == 1 else min(power_of_two(kept), max(1, elements // block_r))
    return Plan("pointwise", block_x, block_r, min(max(_below(block_x * block_r // 256), 1), 8))


def _through_index(work: Work, shorter: float = inf) -> bool:
    """Whether a table is read at loaded places, with an element for each of the tile's. ``shorter``: than so
    many elements its rows must be."""
    domain = work.domain
    whole = domain.kept_size.value * domain.reduced_size.value
    return any(
        node.op == "gather"
        and work.graph.result(node).elements.value * 2 > whole
        and gathered_row(work.graph, node) < shorter
        for node in work.group.nodes
    )


def _neighbouring(length: int, kept: int) -> Plan:
    """Places in the source are computed, so no load is wider than an element, and neighbouring lanes should
    meet neighbouring elements: four for each thread, where a store of 16 bytes would give it eight. Rows are
    cut so that few lanes lie beyond their ends."""
    block_r = min(power_of_two(length), RESAMPLED)
    while block_r > 128 and -(-length // block_r) * block_r * 8 > length * 9:
        block_r //= 2
    block_x = 1 if kept == 1 else min(power_of_two(kept), RESAMPLED // block_r)
    return Plan("pointwise", block_x, block_r, min(max(block_x * block_r // 128, 1), 8))


def constants_of(work: Work, plan: Plan, used: set[str]) -> tuple[Constant, ...]:
    """The plan's numbers as constants of the file, with what a sweep may try instead."""
    found: list[Constant] = []
    prefix = work.group.name.upper()

    def add(name: str, value: int, choices: tuple[int, ...], why: str) -> None:
        found.append(Constant(f"{prefix}_{name}", value, tuple(dict.fromkeys(choices)), why))

    if "BLOCK_X" in used:
        choices = [b for b in (plan.block_x // 2, plan.block_x, plan.block_x * 2) if b >= 2]
        choices = [b for b in choices if not plan.x_divides or _divides(work.domain.kept_size, b)]
        add("BLOCK_X", plan.block_x, tuple(choices) if plan.mode != "pointwise" else (), "rows per program")
    if "BLOCK_R" in used and plan.mode != "resident":
        choices = [b for b in (plan.block_r // 2, plan.block_r, plan.block_r * 2) if b >= 16]
        choices = [b for b in choices if not plan.r_divides or _divides(work.domain.reduced_size, b)]
        why = "elements per program" if plan.mode == "pointwise" else "elements of a row at a time"
        add("BLOCK_R", plan.block_r, tuple(choices), why)
    if "APPLY_R" in used:
        add("APPLY_R", min(256 * plan.warps, plan.block_r), (), "elements per program that applies states")
    if "TILE_R" in used:
        add("TILE_X", plan.tile[0], (), "by TILE_R elements per program that applies states")
        add("TILE_R", plan.tile[1], (), "")
    if "FINISH_X" in used:
        rows = max(2, min(plan.block_x, 2048 // plan.splits))
        add("FINISH_X", rows, (), "rows per program that joins parts")
    if "SPLITS" in used:
        most = max(MOST_SPLITS, plan.splits)
        choices = [s for s in (plan.splits // 2, plan.splits, plan.splits * 2) if 2 <= s <= most]
        add("SPLITS", plan.splits, tuple(choices), "programs that share a row")
    warps = [w for w in (plan.warps // 2, plan.warps, plan.warps * 2) if 1 <= w <= 16]
    add("NUM_WARPS", plan.warps, tuple(warps), "")
    return tuple(found)
