"""Which tile a group gets that orders rows: whole ones, in as few warps as can hold them."""

from __future__ import annotations

from egg.expert.emit.ordering import in_turns, longest
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.work import Plan, Work

PER_WARP = 1024
"""Elements of a tile to a warp: a row within a warp is reduced without shared memory."""
TILE = 512
"""Elements of a program with short rows."""


def selecting(work: Work, wanted: int) -> Plan:
    """Whole rows in registers; short ones share a warp, long ones have a few. ``wanted``: programs."""
    domain = work.domain
    kept, block_r = domain.kept_size.value, 1 << max(domain.reduced_size.value - 1, 0).bit_length()
    networks = any(not in_turns(work.graph, node) for node in work.selections)
    if block_r > min(longest(work.graph, node) for node in work.selections):
        raise Unfit("rows are too long to be ordered in registers")
    most = 1 << max(kept - 1, 0).bit_length()
    if domain.names[1] == "col":  # neighbours in memory belong to different rows
        block_x = min(most, max(8, 4096 // block_r))
    else:
        block_x = min(most, max(1, TILE // block_r))
        while block_x > 1 and domain.outer_size.value * kept // block_x < wanted:
            block_x //= 2
    per_warp = PER_WARP // 2 if networks else PER_WARP
    return Plan("resident", block_x, block_r, min(max(block_x * block_r // per_warp, 1), 8))
