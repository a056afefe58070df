"""Which tile a group gets that joins rows of a table: bags of embeddings, neighbours of equal degree.

Such a row is two waits for memory, one behind the other: for the index, then for what it points at. Nothing
of that is contiguous from one row to the next, so bytes on their way come from many rows at a time. A thread
has whole columns, 16 bytes of neighbours in each row: the rows of a bag are as many independent loads, and
joining them needs no other thread, so a warp neither exchanges anything nor waits for another one.
"""

from __future__ import annotations

from egg.expert.graph import BYTES, Node
from egg.expert.patterns.loops.statistics import FOLDED
from egg.expert.patterns.loops.work import Plan, Work

WHOLE = 32
"""Rows of a bag that are loaded at once: 128 registers of a thread. Longer bags pass by in blocks."""
BLOCK = 16
"""Rows of such a block."""
MOST_WARPS = 4
PER_SM = 8
"""Warps per multiprocessor from which on those of one bag need not share it."""


def bagged(work: Work, mode: str, sms: int) -> Plan | None:
    """The plan of rows that are gathered and joined; ``None`` for every other group, and where so few are
    made that the warps of a program should share each."""
    domain = work.domain
    node = _gathered(work)
    if node is None or mode not in ("resident", "looped"):
        return None
    kept, length = domain.kept_size.value, domain.reduced_size.value
    vector = 16 // BYTES.get(work.graph.result(node).dtype, 4)
    vector = vector if kept % vector == 0 else 1
    block_x = min(_power_of_two(kept), 32 * vector * MOST_WARPS)
    warps = max(block_x // (32 * vector), 1)
    if domain.outer_size.value * -(-kept // block_x) * warps < PER_SM * sms:
        return None
    if mode == "resident":
        return Plan("resident", block_x, _power_of_two(length), warps, skips=True)
    return Plan("looped", block_x, min(_power_of_two(length), BLOCK), warps, folded=True, skips=True)


def _gathered(work: Work) -> Node | None:
    """The gather of whole rows that fills the tile, where all that follows is joined along the places."""
    domain = work.domain
    if domain.names[1] != "col" or not work.single_pass:
        return None
    if any(statistic.kind not in FOLDED for statistic in work.statistics.values()):
        return None
    whole = domain.outer_size * domain.kept_size * domain.reduced_size
    for node in work.group.nodes:
        if node.op == "gather" and _of_rows(work, node) and work.graph.result(node).elements == whole:
            return node
    return None


def _of_rows(work: Work, node: Node) -> bool:
    """Whether a gather takes contiguous rows of its table, not single elements."""
    table = work.graph.value(str(node.inputs[0]))
    along = (node.get("dim", 0) or 0) % max(table.rank, 1)
    return node["how"] in ("embedding", "index_select") and table.rank > 1 and along < table.rank - 1


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
