"""Which tile a group gets that scans few rows: a program for each row, or rows that programs share.

A scan goes on from the total of all that lies before. Where there are few rows, a program that walks down
each is alone on its multiprocessor; and across memory (how many tokens chose each expert so far) every lane
has a line of its own. So long rows are shared like those of reductions: a first kernel leaves the total of
each stretch, the second adds up those before its own and scans from there. A tile then has neighbours in
memory along its lanes. Whole numbers come out the same; others are rounded in fewer steps than one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from egg.expert.emit.triton.scalar import FLOATING
from egg.expert.graph import Node
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.statistics import FOLDED, Statistic
from egg.expert.patterns.loops.work import Plan, Work

SCANNED = 8192
"""Elements that a program scans at once: loads, the scan and stores of several overlap."""
LEAST_ACROSS = 1024
"""Elements of a row across memory from which on sharing it is worth a second launch. Along memory a row that
is scanned at once takes no longer than two launches."""
LEAST_TILE = 1024
MOST_SPLITS = 256
"""Stretches of a row: every program reads the totals of all of them."""
WIDEST = 32
"""Rows of a tile that lie side by side in memory."""
JOINED = frozenset({"sum", "prod", "max", "min"})
"""Scans whose total is a number that joins by one instruction."""


def totals_of(work: Work) -> list[Statistic]:
    """What a stretch of a row adds to each scan; :class:`Unfit` where no total says what to go on from."""
    scans = [node for node in work.group.nodes if node.op == "scan"]
    before = _before(work, [str(name) for node in scans for name in node.inputs])
    gathered = _before(work, [str(statistic.node.inputs[0]) for statistic in work.statistics.values()])
    made = {node.output for node in scans}
    if any(n["fn"] not in JOINED or n.get("reverse") or n.get("exclusive") for n in scans):
        raise Unfit("a scan whose stretches are not joined by their totals")
    if not before.isdisjoint({*made, *work.statistics}) or not gathered.isdisjoint(made) or work.depth > 1:
        raise Unfit("a scan of what follows from the row, or a reduction of what a scan makes")
    if any(statistic.kind not in FOLDED for statistic in work.statistics.values()):
        raise Unfit("a scan beside a reduction with a state of several numbers")
    if not all(work.is_full(name) for name in work.writes if not made.isdisjoint(_before(work, [name]))):
        raise Unfit("a scan of which one number per row is kept")
    return [Statistic(node, node["fn"], None, _kind(work, node)) for node in scans]


def _kind(work: Work, node: Node) -> str:
    if work.graph.value(str(node.inputs[0])).dtype not in FLOATING:
        return "int64"
    return "float64" if node.get("exact") else "float32"


def _before(work: Work, names: Iterable[str]) -> set[str]:
    """Values of the group that others follow from, with those."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            node = work.nodes.get(name)
            waiting += [n for n in node.inputs if n is not None] if node is not None else []
    return found


def scanning(work: Work, sms: int) -> Plan | None:
    """The plan of a few scans; ``None`` where there are many, or where whole rows along memory fit."""
    domain = work.domain
    across = domain.names[1] == "col"
    rows, length = domain.outer_size.value * domain.kept_size.value, domain.reduced_size.value
    if length > (LEAST_ACROSS if across else SCANNED) and _programs(work) < sms:
        try:
            return shared_scans(work, sms)
        except Unfit:
            pass
    if not across or rows > sms:
        return None
    block_r = min(_power_of_two(length), SCANNED)
    whole = block_r >= length and not domain.reduced_size.factors
    return Plan("resident" if whole else "looped", 1, block_r, _warps(block_r))


def shared_scans(work: Work, sms: int) -> Plan:
    """Rows shared by programs, two for each multiprocessor, with at least a block each."""
    totals_of(work)
    domain, block_x = work.domain, _across(work)
    length = domain.reduced_size.value
    share = domain.outer_size.value * domain.kept_size.value * length // (2 * sms)
    tile = min(max(_power_of_two(share), LEAST_TILE), SCANNED)
    block_r = min(_power_of_two(length), max(tile // block_x, 16))
    wanted = _power_of_two(-(-2 * sms // _programs(work)))
    splits = min(wanted, _power_of_two(-(-length // block_r)), MOST_SPLITS)
    return Plan("split", block_x, block_r, _warps(block_x * block_r), splits=max(2, splits))


def _across(work: Work) -> int:
    """Rows of a tile: those that lie side by side in memory."""
    return min(_power_of_two(work.domain.kept_size.value), WIDEST) if work.domain.names[1] == "col" else 1


def _programs(work: Work) -> int:
    """Those that have rows for themselves."""
    return work.domain.outer_size.value * -(-work.domain.kept_size.value // _across(work))


def _warps(elements: int) -> int:
    """About 16 elements per thread, 8 where a program has few."""
    if elements <= LEAST_TILE:
        return max(elements // 256, 1)
    return min(elements // 512, 8)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
