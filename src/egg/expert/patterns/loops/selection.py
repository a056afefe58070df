"""How many elements selections take of rows, and which rows are short enough to be ordered in registers."""

from __future__ import annotations

from egg.expert.graph import Graph, Node
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.work import Plan, Work

FEW = 32
"""Elements that are taken one after the other; more of them go through a network."""
LONGEST, LONGEST_NETWORK = 8192, 4096
"""Elements of a row that a program holds, by either method."""
PER_WARP = 1024
"""Elements of a tile to a warp: a row within a warp is reduced without shared memory."""
TILE = 512
"""Elements of a program with short rows."""


def in_turns(graph: Graph, node: Node) -> bool:
    """Whether elements are taken one after the other, rather than by a network."""
    return not node["whole"] and graph.value(node.outputs[0]).shape[node["dim"]].value <= FEW


def selecting(work: Work, wanted: int) -> Plan:
    """Whole rows in registers; short ones share a warp, long ones have a few. ``wanted``: programs."""
    domain = work.domain
    kept, block_r = domain.kept_size.value, 1 << max(domain.reduced_size.value - 1, 0).bit_length()
    networks = any(not in_turns(work.graph, node) for node in work.selections)
    if block_r > (LONGEST_NETWORK if networks else LONGEST):
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
