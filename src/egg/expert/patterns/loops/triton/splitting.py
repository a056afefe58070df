"""Rows that programs share: kernels that leave partial states, and kernels that join and apply them."""

from __future__ import annotations

from egg.expert.patterns.loops.scans import totals_of
from egg.expert.patterns.loops.statistics import Statistic
from egg.expert.patterns.loops.triton.writer import Writer
from egg.expert.patterns.loops.work import Plan, Work


def split(work: Work, plan: Plan) -> list[Writer]:
    """A kernel of partial states per level, then one that finishes.

    Where a lot is left to apply the states to, joining them is a launch of its own: then applying is plain
    pointwise work with a block per program, which runs at a copy's speed; programs that walk over their
    share of a row wait for each block before they ask for the next.
    """
    if work.scans:
        return _scanned(work, plan)
    kernels: list[Writer] = []
    stem = work.group.name
    for level in range(1, work.depth + 1):
        name = f"{stem}_parts_kernel" if work.depth == 1 else f"{stem}_parts_{level}_kernel"
        kernel = Writer(work, plan, name, "stretch")
        needed = _needed(work, [str(s.node.inputs[0]) for s in work.gathered(level)])
        kernel.fetch(s for s in work.statistics.values() if s.name in needed)
        kernel.looped(work.gathered(level))
        kernel.leave(work.gathered(level))
        kernels.append(kernel)
    full = [name for name in work.writes if work.is_full(name)]
    rows = [name for name in work.writes if name not in full]
    if plan.apart and full:
        join = Writer(work, plan, f"{stem}_join_kernel", "none")
        join.fetch(work.statistics.values())
        join.leave(work.statistics.values())
        for name in rows:
            join.store(name)
        apply = Writer(work, plan, f"{stem}_apply_kernel", "apply")
        apply.recall(work.statistics.values())
        for name in full:
            apply.store(name)
        return [*kernels, join, apply]
    last = Writer(work, plan, f"{stem}_finish_kernel", "stretch" if full else "none")
    last.fetch(work.statistics.values())
    _finish(last, full, rows)
    return [*kernels, last]


def _scanned(work: Work, plan: Plan) -> list[Writer]:
    """A kernel that leaves the totals of stretches, for scans as for reductions, then one that scans."""
    totals, stem = totals_of(work), work.group.name
    parts = Writer(work, plan, f"{stem}_parts_kernel", "stretch")
    parts.looped([*work.statistics.values(), *totals])
    parts.leave([*work.statistics.values(), *totals])
    last = Writer(work, plan, f"{stem}_finish_kernel", "stretch")
    last.fetch(work.statistics.values())
    last.fetch_before(totals)
    full = [name for name in work.writes if work.is_full(name)]
    _finish(last, full, [name for name in work.writes if name not in full])
    return [parts, last]


def _finish(last: Writer, full: list[str], rows: list[str]) -> None:
    if full:  # each program joins the states once and applies them to its share of the row
        last.looped([], full)
    if full and rows:  # one program of each row writes what there is one of
        with last.reader.only_if("split == 0"):
            for name in rows:
                last.store(name)
    for name in () if full else rows:
        last.store(name)


def left_by(work: Work) -> list[Statistic]:
    """What programs that share rows leave for each other."""
    return [*work.statistics.values(), *(totals_of(work) if work.scans else ())]


def _needed(work: Work, names: list[str]) -> set[str]:
    """Statistics that values depend on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in work.statistics:
            found.add(name)
        node = work.nodes.get(name)
        waiting += [n for n in node.inputs if n is not None] if node is not None else []
    return found
