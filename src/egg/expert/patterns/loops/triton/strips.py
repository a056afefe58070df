"""Pooling, several rows of the result per program, from the top down.

Windows overlap: with a kernel of 4 and a step of 1 every element is in sixteen windows, and loading it for
each keeps the load units busy for longer than memory. But a window is a few rows joined, and the next window
below shares all of them but the last. So a program walks down a strip of the result and keeps the rows of
the window in registers, each joined along the width already: per result row it loads only the rows that
enter the window, once for every tap along the width. The row is a scalar, so no element divides to find
its place, and being inside along the height is decided once per row.

The columns of lanes beyond the last are those of the last: no mask along the width is needed, and the
compiler gives every load the same layout, one element per lane. Aligned loads would otherwise get one of
their own, and each an exchange through shared memory. Windows along a single dimension gain by that alone.
"""

from __future__ import annotations

from itertools import product as combinations

from egg.expert.emit.triton.scalar import FLOATING
from egg.expert.graph import Graph, Node
from egg.expert.index import Index, loop_index
from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns.loops.domain import Anchored, Domain, Split
from egg.expert.patterns.loops.triton.reader import UNROLLED
from egg.expert.patterns.loops.triton.writer import Writer
from egg.expert.patterns.loops.work import Plan, Work
from egg.expert.window import Window, window_of

NARROWEST = 32
"""Columns below which lanes would be idle."""
MOST_ROWS = 32
PER_SM = 16
"""Programs per multiprocessor that are wanted at least."""


def strips_of(graph: Graph, group: Group, target: Target) -> tuple[Work, Plan, Writer] | None:
    """The group walking down strips, where it is a pool that gains by that; else nothing."""
    pools = [node for node in group.nodes if node.op == "pool"]
    writes = group.writes(graph)
    if any(node.op == "scatter" for node in group.nodes):
        return None
    if len(pools) != 1 or len(writes) != 1 or target.settings.get("mode", "strips") != "strips":
        return None
    (pool,), main = pools, graph.value(writes[0])
    try:
        window = window_of(graph, pool)
    except Unfit:
        return None
    shape = graph.result(pool).shape
    fits = 2 < window.taps <= UNROLLED and pool["fn"] in ("max", "avg")
    gains = window.kernel[-2:] != window.stride[-2:] and shape[-1].value >= NARROWEST
    row_major = main.contiguous or main.lent
    plain = main.shape == shape and row_major and graph.value(str(pool.inputs[0])).dtype in FLOATING
    if not (fits and gains and plain):
        return None
    dims = tuple(range(main.rank))
    walks = min(window.rank - 1, 1)
    domain = Domain(Split(main.shape, dims[:-1], dims[-1:]), walks, ("plane", "row", "col"))
    work = Work(graph, group, domain, Anchored())
    plan = _plan(work, target)
    try:
        return work, plan, _walking(work, plan, pool, window) if walks else _standing(work, plan)
    except Unfit:
        return None


def _plan(work: Work, target: Target) -> Plan:
    domain = work.domain
    width, height = domain.reduced_size.value, domain.kept_size.value
    block_r = min(1 << (width - 1).bit_length(), 512 if work.domain.inner else 1024)
    across = domain.outer_size.value * -(-width // block_r)
    rows = MOST_ROWS
    while rows > 4 and (across * -(-height // rows) < PER_SM * target.gpu.sms or rows >= 2 * height):
        rows //= 2
    block_r = int(target.settings.get("BLOCK_R", block_r))
    rows = int(target.settings.get("BLOCK_X", rows))
    warps = int(target.settings.get("NUM_WARPS", max(block_r // 128, 1)))
    return Plan("strips", rows, block_r, warps)


def _standing(work: Work, plan: Plan) -> Writer:
    """Windows along a line have no rows to walk down: neighbours find each other's taps in the L1 cache."""
    kernel = Writer(work, plan, f"{work.group.name}_kernel", "strip")
    for name in work.writes:
        kernel.store(name)
    return kernel


def _walking(work: Work, plan: Plan, pool: Node, window: Window) -> Writer:
    kernel = Writer(work, plan, f"{work.group.name}_kernel", "strip")
    body, reader, domain = kernel.body, kernel.reader, work.domain
    own, height = domain.index(domain.main), domain.kept_size
    dilated = window.dilation[-2] != 1
    shared = 0 if dilated else max(window.kernel[-2] - window.stride[-2], 0)
    first = loop_index("first", height)
    body.taken |= {"first"}
    at_first = tuple(first if place == len(own) - 2 else at for place, at in enumerate(own))
    above = [_line(kernel, pool, window, at_first, offset) for offset in range(shared)]
    kept = [body.let("above", line) for line in above]

    def pooled(index: Index, guards: tuple[str, ...]) -> str:
        if index != own or guards:
            raise Unfit("a pool is read at other places than those of its strip")
        offsets = range(shared, window.kernel[-2])
        lines = [*kept, *(_line(kernel, pool, window, own, offset) for offset in offsets)]
        total = reader.joined_window(pool, window, own, lines)
        leave = lines[window.stride[-2] : window.stride[-2] + shared]
        for name, line in zip(kept, leave, strict=True):
            body.line(f"{name} = {line}")
        return total

    reader.hooks[pool.output] = pooled
    with reader.loop(f"for row in range(first, tl.minimum(first + BLOCK_X, {height.code()})):"):
        for name in work.writes:
            kernel.store(name)
    return kernel


def _line(kernel: Writer, pool: Node, window: Window, index: Index, offset: int) -> str:
    """One row of the window, joined along all its other dimensions."""
    ranges = [range(size) for size in window.kernel]
    ranges[-2] = range(offset, offset + 1)
    return kernel.reader.joined_taps(pool, window, index, combinations(*ranges), "line")
